"""Settings: flags beat the environment, the environment beats the file, the file beats the defaults.

The file is `~/.config/warmd/warmd.toml`, or what `WARMD_CONFIG` names. Every key can also be given as an
environment variable: `[warm] chunk_tokens` is `WARMD_WARM_CHUNK_TOKENS`. Whatever is misspelled, of the wrong
type or out of range is an error that names the file or variable and the key: nothing is ignored in silence.
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args

from warmd.disk.bounds import parse_max_bytes
from warmd.errors import UsageError
from warmd.events import Level
from warmd.memory.size import parse_limit, parse_size
from warmd.nearest import nearest_of

MEBIBYTE = 1 << 20
AUTO = "auto"
SMALLEST_LOG = 1 << 16
LEVELS: tuple[str, ...] = get_args(Level)


def _setting(
    default: Any,
    help: str,  # noqa: A002 - dataclass idiom
    minimum: float | None = None,
    check: Callable[[Any], object] | None = None,
) -> Any:
    """A key. `check` raises ValueError, saying what was expected, for a value that is not allowed."""
    return field(default=default, metadata={"help": help, "minimum": minimum, "check": check})


def _check_path(text: str) -> None:
    if not text.strip():
        raise ValueError(f"expected a path, found {text!r}")
    _check_path_or_empty(text)


def _check_path_or_empty(text: str) -> None:
    if "\0" in text or (text and not text.strip()):
        raise ValueError(f"expected a path, found {text!r}")
    if text == AUTO:
        raise ValueError(f"expected a path, found {text!r}, which only [log] file knows (./{AUTO} is a path)")
    try:
        Path(text).expanduser()
    except RuntimeError:
        raise ValueError(f"expected a path, found {text!r}: there is no home folder to take ~ for") from None


def _check_log_file(text: str) -> None:
    if text != AUTO:
        _check_path_or_empty(text)


def _check_rate(text: str) -> None:
    if parse_size(text) < 1:
        raise ValueError(f"expected a size of at least 1 byte, found {text!r}")


def _check_share(share: float) -> None:
    if share > 0.9:
        raise ValueError(f"expected at most 0.9, found {share}")


def _check_level(text: str) -> None:
    if text not in LEVELS:
        raise ValueError(f"expected one of {', '.join(LEVELS)}, found {text!r}")


def _check_log_size(text: str) -> None:
    if parse_size(text) < SMALLEST_LOG:
        raise ValueError(f"expected a size of at least 64KiB, found {text!r}")


@dataclass(frozen=True, slots=True)
class PromptsSettings:
    """`[prompts]`"""

    path: str = _setting("~/.config/warmd/prompts.json", "the warm-prompts file", check=_check_path)
    max_bytes: int = _setting(64 * MEBIBYTE, "larger prompts files and included files are rejected", 1)


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """`[watch]`, in seconds"""

    settle: float = _setting(0.25, "a save is acted on once the file has been quiet for this long", 0)
    ceiling: float = _setting(1.0, "a file that keeps changing is read after this long all the same", 0)
    rehash: float = _setting(5.0, "how often to look even if no event came", 0.05)
    poll: bool = _setting(False, "poll instead of using the system's events, for network mounts")
    timeout: float = _setting(10.0, "a file system that does not answer is waited for this long", 0.05)


@dataclass(frozen=True, slots=True)
class WarmSettings:
    """`[warm]`"""

    concurrency: int = _setting(1, "entries warmed at the same time", 1)
    chunk_seconds: float = _setting(0.25, "time of one warming step: a live request may wait for one", 0.001)
    chunk_tokens: int = _setting(1024, "tokens of one warming step at most", 1)
    live_share: float = _setting(
        0.1,
        "share of the time in which requests only decode that warming may take",
        0,
        check=_check_share,
    )
    prove: float = _setting(600.0, "how often to prove that each warm entry is still served, in seconds", 1)
    rewarms_per_hour: int = _setting(6, "an entry that is lost more often within an hour waits", 1)
    checkpoint_tokens: int = _setting(
        1024, "tokens between two checkpoints of models whose state cannot be cut", 16
    )
    checkpoint_max_bytes: str = _setting("1GiB", "all checkpoints together", check=parse_size)


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """`[memory]`: sizes such as 12GB or 800MiB, and seconds"""

    limit: str = _setting("auto", "bytes that the process may take while warming", check=parse_limit)
    reserve: str = _setting("512MiB", "kept free for live requests", check=parse_size)
    look: float = _setting(5.0, "seconds between two looks at the memory while idle", 0.05)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """`[store]`: warm state on disk; sizes such as 20GB or 800MiB, and seconds"""

    enabled: bool = _setting(True, "keep the state of declared entries on disk, for the next start")
    path: str = _setting("", "the folder; empty for the system's own place", check=_check_path_or_empty)
    max_bytes: str = _setting(
        AUTO, "all files together; auto: 20 GB, or a tenth of the free disk", check=parse_max_bytes
    )
    grace: float = _setting(604_800.0, "files that no entry has wanted for so long are removed", 0)
    write_rate: str = _setting("100MB", "bytes written a second at most", check=_check_rate)
    check: bool = _setting(True, "compute a sample of what was read anew, and compare")


@dataclass(frozen=True, slots=True)
class StateSettings:
    """`[state]`"""

    dir: str = _setting(
        "", "the folder of the control socket; empty for the system's own place", check=_check_path_or_empty
    )


@dataclass(frozen=True, slots=True)
class LogSettings:
    """`[log]`"""

    file: str = _setting(AUTO, "the log file of `warmd serve` and `warmd sidecar`", check=_check_log_file)
    level: str = _setting("info", "the lowest level that is logged", check=_check_level)
    max_bytes: str = _setting("10MiB", "a larger file is set aside", check=_check_log_size)
    keep: int = _setting(5, "how many that were set aside are kept", 0)


@dataclass(frozen=True, slots=True)
class SidecarSettings:
    """`[sidecar]`, in seconds"""

    poll: float = _setting(5.0, "how often the server is asked for its models", 0.05)
    timeout: float = _setting(600.0, "how long the server may take over one prompt", 1)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be configured."""

    prompts: PromptsSettings = PromptsSettings()
    watch: WatchSettings = WatchSettings()
    warm: WarmSettings = WarmSettings()
    memory: MemorySettings = MemorySettings()
    state: StateSettings = StateSettings()
    log: LogSettings = LogSettings()
    store: StoreSettings = StoreSettings()
    sidecar: SidecarSettings = SidecarSettings()


def config_path(environment: Mapping[str, str] | None = None) -> Path:
    """Where the settings file is, whether or not it exists.

    Raises:
        UsageError: It begins with `~` and there is no home folder.
    """
    environment = os.environ if environment is None else environment
    return expand_home(environment.get("WARMD_CONFIG") or "~/.config/warmd/warmd.toml")


def load_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Read the settings file and the environment.

    A relative path in the file is relative to the file's folder.

    Raises:
        UsageError: The file that `WARMD_CONFIG` names is missing, a file cannot be read, or keys, values or
            variables are not what they should be: each of them in a line of its own.
    """
    environment = os.environ if environment is None else environment
    path = config_path(environment)
    table = _read(path, may_be_missing=not environment.get("WARMD_CONFIG"))
    problems: list[str] = []
    settings = _apply_table(Settings(), table, path, problems)
    settings = _apply_environment(settings, environment, problems)
    if problems:
        raise UsageError("\n".join(problems))
    return settings


def settings_without(environment: Mapping[str, str]) -> Settings:
    """In place of settings that are wrong: the defaults, and the state folder that the environment names."""
    folder = environment.get("WARMD_STATE_DIR", "")
    try:
        _check_path_or_empty(folder)
    except ValueError:
        folder = ""
    return Settings(state=StateSettings(folder))


@contextmanager
def _noting(problems: list[str]) -> Iterator[None]:
    """Go on after something wrong, so that all of it is told at once."""
    try:
        yield
    except UsageError as error:
        problems.append(str(error))


def expand_home(text: str) -> Path:
    """A path as a user wrote it, with ``~`` taken for the home folder.

    Raises:
        UsageError: There is no such home folder.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise UsageError(f"{text}: there is no home folder to take ~ for") from None


def system_folder(find: Callable[[], Path]) -> Path:
    """A folder that `platformdirs` knows, such as `platformdirs.user_state_path` finds.

    Raises:
        UsageError: It is below the home folder, and there is none.
    """
    try:
        return expand_home(str(find()))
    except RuntimeError as error:
        raise UsageError(str(error)) from None


def _read(path: Path, *, may_be_missing: bool) -> dict[str, Any]:
    try:
        # Some editors begin a file with a byte order mark, which TOML does not know.
        return tomllib.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        if may_be_missing and isinstance(error, (FileNotFoundError, NotADirectoryError)):
            return {}
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: expected UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{path}: nested too deeply") from None


def _apply_table(settings: Settings, table: Mapping[str, Any], path: Path, problems: list[str]) -> Settings:
    for section, values in table.items():
        with _noting(problems):
            if section not in _names(settings):
                what = f"section [{section}]" if isinstance(values, dict) else f"key {section!r}"
                others = f"there are {', '.join(f'[{name}]' for name in _names(settings))}"
                raise UsageError(f"{path}: unknown {what}; {_nearest(section) or others}")
            if not isinstance(values, dict):
                raise UsageError(f"{path}: [{section}] must be a table")
            changed = _apply_section(getattr(settings, section), section, values, path, problems)
            settings = replace(settings, **{section: changed})
    return settings


PATHS = (("prompts", "path"), ("state", "dir"), ("log", "file"), ("store", "path"))
"""Section and key of the settings that are paths."""


def _apply_section(
    current: Any, section: str, values: Mapping[str, Any], path: Path, problems: list[str]
) -> Any:
    for key, value in values.items():
        where = f"{path}: [{section}] {key}"
        with _noting(problems):
            if key not in _names(current):
                others = f"there are {', '.join(_names(current))}"
                raise UsageError(f"{where}: unknown key; {_nearest(key) or others}")
            is_path = (section, key) in PATHS and isinstance(value, str) and value.strip() not in ("", AUTO)
            is_relative = is_path and not value.startswith("~")
            full = str(path.absolute().parent / value) if is_relative else value
            current = _set(current, key, full, where)
    return current


def _nearest(name: str) -> str | None:
    """The section or key, of whatever section, that is spelled nearly like a name, in words."""
    known = {section: f"[{section}]" for section in _names(Settings())}
    known |= {item.name: f"[{section}] {item.name}" for section, item in _keys()}
    found = nearest_of(name, known)
    return f"the nearest known one is {known[found]}" if found else None


def _names(section: Any) -> list[str]:
    return [item.name for item in fields(section)]


def _keys() -> Iterator[tuple[str, Field[Any]]]:
    """Every key, each with the name of its section."""
    settings = Settings()
    for section in _names(settings):
        for item in fields(getattr(settings, section)):
            yield section, item


def _apply_environment(settings: Settings, environment: Mapping[str, str], problems: list[str]) -> Settings:
    variables = {f"WARMD_{section}_{item.name}".upper(): (section, item.name) for section, item in _keys()}
    given = (name for name in environment if name.startswith("WARMD_") and name != "WARMD_CONFIG")
    for variable in sorted(given):
        with _noting(problems):
            if variable not in variables:
                found = nearest_of(variable, ["WARMD_CONFIG", *variables])
                hint = f"the nearest known one is {found}" if found else "a setting's is WARMD_SECTION_KEY"
                raise UsageError(f"{variable}: unknown variable; {hint}")
            section, key = variables[variable]
            current = getattr(settings, section)
            value = _parse(environment[variable], type(getattr(current, key)), variable)
            settings = replace(settings, **{section: _set(current, key, value, variable)})
    return settings


def _parse(text: str, kind: type, where: str) -> Any:
    try:
        return _TRUTH[text.strip().lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        raise UsageError(f"{where}: expected {_TYPE_NAMES[kind]}, found {text!r}") from None


_TRUTH = {"1": True, "true": True, "yes": True, "on": True}
_TRUTH |= {"0": False, "false": False, "no": False, "off": False}
_TYPE_NAMES: dict[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _set(section: Any, key: str, value: Any, where: str) -> Any:
    expected = type(getattr(section, key))
    if expected is float and type(value) is int:
        value = _to_float(value, where)
    # The exact type: True is an int to isinstance.
    if type(value) is not expected:
        found = _TYPE_NAMES.get(type(value), f"a {type(value).__name__}")
        raise UsageError(f"{where}: expected {_TYPE_NAMES[expected]}, found {found}")
    _check(value, next(item.metadata for item in fields(section) if item.name == key), where)
    return replace(section, **{key: value})


def _to_float(value: int, where: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise UsageError(f"{where}: expected a finite number") from None


def _check(value: Any, metadata: Mapping[str, Any], where: str) -> None:
    minimum, check = metadata["minimum"], metadata["check"]
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{where}: expected a finite number, found {value}")
    if minimum is not None and value < minimum:
        raise UsageError(f"{where}: expected at least {minimum:g}, found {value}")
    if check is not None:
        try:
            check(value)
        except ValueError as error:
            raise UsageError(f"{where}: {error}") from None
