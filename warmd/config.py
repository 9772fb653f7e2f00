"""Reads settings: flags beat the environment, the environment beats the file, the file beats the defaults.

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
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import Any

from warmd.errors import UsageError
from warmd.nearest import nearest_of
from warmd.settings import AUTO, PATHS, Settings, StateSettings, check_path_or_empty


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
        check_path_or_empty(folder)
    except ValueError:
        folder = ""
    return Settings(state=StateSettings(folder))


def variables_given(environment: Mapping[str, str]) -> list[str]:
    """Names of the variables that are for settings."""
    return sorted(name for name in environment if name.startswith("WARMD_") and name != "WARMD_CONFIG")


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
    except UnicodeDecodeError as error:
        what = f"expected UTF-8, found another encoding at byte {error.start}"
        raise UsageError(f"{path}: {what}") from None
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


def _apply_section(
    current: Any, section: str, values: Mapping[str, Any], path: Path, problems: list[str]
) -> Any:
    for key, value in values.items():
        where = f"{path}: [{section}] {key}"
        with _noting(problems):
            if key not in _names(current):
                others = f"there are {', '.join(_names(current))}"
                raise UsageError(f"{where}: unknown key; {_nearest(key, section) or others}")
            is_path = (section, key) in PATHS and isinstance(value, str) and value.strip() not in ("", AUTO)
            is_relative = is_path and not value.startswith("~")
            full = str(path.absolute().parent / value) if is_relative else value
            current = _set(current, key, full, where)
    return current


def _nearest(name: str, section: str = "") -> str | None:
    """The section or key that is spelled nearly like a name, of this section before any other, in words."""
    known = {section: f"[{section}]" for section in _names(Settings())}
    # Several sections have a key of the same name.
    keys = sorted(_keys(), key=lambda found: found[0] == section)
    known |= {item.name: f"[{where}] {item.name}" for where, item in keys}
    own = [item.name for where, item in keys if where == section]
    found = nearest_of(name, own) or nearest_of(name, known)
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
    for variable in variables_given(environment):
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
_TYPE_NAMES |= {dict: "a table"}


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
        raise UsageError(f"{where}: expected a finite number, found one that is too large") from None


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
