"""What installing writes: the settings, the folders, the LaunchAgent's file. Loading it is `service`'s."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from warmd.capture.files import write_atomically
from warmd.config import config_path, expand_home
from warmd.engines.model_folder import check_model_folder
from warmd.errors import UsageError, WarmdError
from warmd.launchd.agent import (
    CARRIED,
    Plist,
    find_faults,
    flag_value,
    read_plist,
    serve_arguments,
    to_bytes,
    variables_of,
)
from warmd.launchd.packaged import read_packaged

_TEMPLATES_OWN = ("HOME", "PATH", "PYTHONUNBUFFERED")
_PATH_VARIABLES = ("WARMD_CONFIG", "WARMD_PROMPTS_PATH", "WARMD_STATE_DIR", "WARMD_LOG_FILE", "HF_HOME")
_FOLDER_FLAGS = ("--adapter-path", "--draft-model")


class RootError(UsageError):
    """`sudo warmd install`."""

    def __init__(self) -> None:
        super().__init__(
            "run this as yourself, without sudo: a LaunchAgent belongs to a user, and root has none"
        )


class CannotChangeError(WarmdError):
    """A file or folder of the installation cannot be made, replaced or removed."""

    def __init__(self, path: Path | str, error: OSError) -> None:
        super().__init__(f"cannot change {error.filename or path}: {error.strerror or error}")


class FaultyPlistError(WarmdError):
    """What would be written is against our own rules."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__(f"the LaunchAgent would not work: {'; '.join(faults)}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person asked for.

    Attributes:
        model: Folder or Hugging Face name; None keeps what is installed.
        prompts: The warm-prompts file; None leaves it to the settings.
        port: None leaves it to the server.
        flags: For mlx_lm.server.
    """

    model: str | None
    prompts: str | None = None
    port: int | None = None
    flags: tuple[str, ...] = ()


def refuse_root(uid: int, platform: str) -> None:
    """Stop root on a Mac.

    Raises:
        RootError: It is root.
    """
    if uid == 0 and platform == "darwin":
        raise RootError


def make_arguments(wanted: Wanted, installed: Plist | None) -> tuple[str, ...]:
    """The command line of `warmd serve`, with absolute paths: launchd starts it in `/`, without a shell.

    Raises:
        UsageError: There is no model, or something is given that another part decides.
        ModelError: The model's folder is none.
    """
    if wanted.model is None:
        if installed is None or not serve_arguments(installed):
            raise UsageError("install needs --model M (a model folder or Hugging Face name)")
        if wanted.flags:
            raise UsageError("flags for the server go with --model M: all of them are written anew")
        arguments = list(serve_arguments(installed))
    else:
        arguments = ["--model", _model(wanted.model), *_flags(wanted.flags)]
    if wanted.prompts is not None:
        _set(arguments, "--prompts", str(expand_home(wanted.prompts).absolute()))
    if wanted.port is not None:
        _set(arguments, "--port", str(wanted.port))
    return tuple(arguments)


def _model(model: str) -> str:
    folder = expand_home(model)
    if folder.exists() or model.startswith(("~", "/", ".")):
        model = str(folder.absolute())
    check_model_folder(model)
    return model


def _flags(flags: Sequence[str]) -> list[str]:
    if flags and not flags[0].startswith("-"):
        raise UsageError(f"unexpected argument {flags[0]!r}: flags for the server go after --")
    for flag in ("--model", "--prompts", "--port"):
        if flag_value(flags, flag) is not None:
            raise UsageError(f"{flag} goes before --")
    found = list(flags)
    for flag in _FOLDER_FLAGS:
        value = flag_value(found, flag)
        # A draft model may be a name of the hub; a folder of that name comes first, as in mlx-lm.
        if value is not None and (flag == "--adapter-path" or expand_home(value).exists()):
            _set(found, flag, str(expand_home(value).absolute()))
    return found


def _set(arguments: list[str], flag: str, value: str) -> None:
    """Give a flag a value, in place of those it has."""
    while flag in arguments:
        place = arguments.index(flag)
        del arguments[place : place + 2]
    arguments[:] = [argument for argument in arguments if not argument.startswith(f"{flag}=")]
    arguments += [flag, value]


def make_environment(environment: Mapping[str, str], installed: Plist | None) -> dict[str, str]:
    """Variables that the service needs as this shell has them, so that it reads the same settings."""
    before = variables_of(installed) if installed is not None else {}
    kept = {name: value for name, value in before.items() if name not in _TEMPLATES_OWN}
    ours = {
        name: value for name, value in environment.items() if name.startswith("WARMD_") or name in CARRIED
    }
    paths = {name: ours[name] for name in _PATH_VARIABLES if ours.get(name) not in (None, "", "auto")}
    absolute = {name: str(expand_home(value).absolute()) for name, value in paths.items()}
    return {**kept, **ours, **absolute}


def read_installed(path: Path) -> Plist | None:
    """The file that is there, None if there is none.

    Raises:
        UnreadablePlistError: It is no plist of ours.
        CannotChangeError: It cannot even be read.
    """
    try:
        return read_plist(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CannotChangeError(path, error) from None


def check(plist: Plist, path: Path) -> None:
    """Hold a plist against our rules.

    Raises:
        FaultyPlistError: It breaks some.
    """
    if faults := find_faults(plist, path):
        raise FaultyPlistError(faults)


def write_settings() -> Path | None:
    """Write the settings file with every line commented out, unless there is one.

    Returns:
        Its path, or None if it was there.

    Raises:
        CannotChangeError: It cannot be written.
    """
    path = config_path()
    if os.path.lexists(path):
        return None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(comment_out(read_packaged("warmd.toml").decode("utf-8")), encoding="utf-8")
    except OSError as error:
        raise CannotChangeError(path, error) from None
    return path


def comment_out(sample: str) -> str:
    """The sample with its values as comments, so that a later version's better defaults count."""
    lines = [f"# {line}" if line and line[0] not in "#[" else line for line in sample.splitlines()]
    return "\n".join([*lines, ""])


def make_folders(*folders: Path) -> None:
    """Make folders that nobody else can look into, unless they are there.

    Raises:
        CannotChangeError: One cannot be made.
    """
    for folder in folders:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise CannotChangeError(folder, error) from None


def write_plist(path: Path, plist: Plist) -> None:
    """Replace the file at once; launchd refuses one that others may write.

    Raises:
        CannotChangeError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, to_bytes(plist), 0o644)
    except OSError as error:
        raise CannotChangeError(path, error) from None
