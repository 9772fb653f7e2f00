"""The command line of `warmd serve` that a service gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warmd.config import expand_home
from warmd.engines.model_folder import check_adapter, check_model_folder
from warmd.errors import UsageError
from warmd.files.atomic import is_there
from warmd.launchd.agent import Plist, serve_arguments
from warmd.launchd.flags import flag_value, has_flag, is_host
from warmd.launchd.server_flags import check_flags, server_flags

_BEFORE = ("--model", "--prompts", "--port")
_NOT_FOR_SERVICES = {
    "-h": "it shows a text and ends",
    "--help": "it shows a text and ends",
    "--demo": "it is for a first look in a terminal",
    "--engine": "the service runs mlx-lm's server",
}
_FOLDERS = ("--adapter-path", "--draft-model")


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


def make_arguments(wanted: Wanted, installed: Plist | None) -> tuple[str, ...]:
    """The command line of `warmd serve`, with absolute paths: launchd starts it in `/`, without a shell.

    Raises:
        UsageError: There is no model, or something is given that another part decides or that cannot be.
        ModelError: The model's folder is none, or that of its adapter.
    """
    if wanted.model is None:
        if installed is None or not serve_arguments(installed):
            raise UsageError("install needs --model M (a model folder or Hugging Face name)")
        if wanted.flags:
            raise UsageError("flags for the server go with --model M: all of them are written anew")
        arguments = list(serve_arguments(installed))
        check_flags(arguments, server_flags())
    else:
        arguments = ["--model", _model(wanted.model), *_flags(wanted.flags)]
    if wanted.prompts is not None:
        _set(arguments, "--prompts", _absolute("--prompts", wanted.prompts))
    if wanted.port is not None:
        _set(arguments, "--port", str(wanted.port))
    return tuple(arguments)


def _absolute(flag: str, value: str) -> str:
    if not value.strip():
        raise UsageError(f"{flag}: expected a path, found {value!r}")
    return str(expand_home(value).absolute())


def _model(model: str) -> str:
    if not model.strip():
        raise UsageError(f"--model: expected a model folder or Hugging Face name, found {model!r}")
    folder = expand_home(model)
    if is_there(folder) or model.startswith(("~", "/", ".")):
        model = str(folder.absolute())
    check_model_folder(model)
    return model


def _flags(flags: Sequence[str]) -> list[str]:
    if flags and not flags[0].startswith("-"):
        raise UsageError(f"unexpected argument {flags[0]!r}: flags for the server go after --")
    _refuse(flags)
    check_flags(flags, server_flags())
    found = list(flags)
    for flag in ("--host", *_FOLDERS):
        if has_flag(found, flag) and not (flag_value(found, flag) or "").strip():
            raise UsageError(f"{flag}: expected a value, found {flag_value(found, flag)!r}")
    host = flag_value(found, "--host")
    if host is not None and not is_host(host):
        raise UsageError(f"--host: expected a host's name or address, found {host!r}")
    for flag in _FOLDERS:
        value = flag_value(found, flag)
        # A draft model may be a name of the hub; a folder of that name comes first, as in mlx-lm.
        if value is not None and (flag == "--adapter-path" or is_there(expand_home(value))):
            _set(found, flag, _absolute(flag, value))
    check_adapter(flag_value(found, "--adapter-path"))
    check_model_folder(flag_value(found, "--draft-model"))
    return found


def _refuse(flags: Sequence[str]) -> None:
    for flag in _BEFORE:
        if has_flag(flags, flag):
            raise UsageError(f"{flag} goes before --")
    for flag, reason in _NOT_FOR_SERVICES.items():
        if has_flag(flags, flag):
            raise UsageError(f"{flag} is not for a service: {reason}")
    if "--" in flags:
        raise UsageError("unexpected argument '--': one is enough")


def _set(arguments: list[str], flag: str, value: str) -> None:
    """Give a flag a value, in place of those it has."""
    while flag in arguments:
        place = arguments.index(flag)
        del arguments[place : place + 2]
    arguments[:] = [argument for argument in arguments if not argument.startswith(f"{flag}=")]
    arguments += [flag, value]
