"""Settings: flags beat the environment, the environment beats the file, the file beats the defaults.

The file is `~/.config/warmd/warmd.toml`, or what `WARMD_CONFIG` names. Every key can also be given as an
environment variable: `[warm] chunk_tokens` is `WARMD_WARM_CHUNK_TOKENS`.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from warmd.errors import UsageError

MEBIBYTE = 1 << 20


def _setting(default: Any, help: str, minimum: float | None = None) -> Any:  # noqa: A002 - dataclass idiom
    return field(default=default, metadata={"help": help, "minimum": minimum})


@dataclass(frozen=True, slots=True)
class PromptsSettings:
    """`[prompts]`"""

    path: str = _setting("~/.config/warmd/prompts.json", "the warm-prompts file")
    max_bytes: int = _setting(64 * MEBIBYTE, "larger prompts files and included files are rejected", 1)


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """`[watch]`, in seconds"""

    settle: float = _setting(0.25, "a save is acted on once the file has been quiet for this long", 0)
    ceiling: float = _setting(1.0, "a file that keeps changing is read after this long all the same", 0)
    rehash: float = _setting(5.0, "how often to look even if no event came", 0.05)
    poll: bool = _setting(False, "poll instead of using the system's events, for network mounts")


@dataclass(frozen=True, slots=True)
class WarmSettings:
    """`[warm]`"""

    concurrency: int = _setting(1, "entries warmed at the same time", 1)
    chunk_tokens: int = _setting(
        256, "tokens of one warming step: what a live request may have to wait for", 1
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be configured."""

    prompts: PromptsSettings = PromptsSettings()
    watch: WatchSettings = WatchSettings()
    warm: WarmSettings = WarmSettings()


def config_path(environment: Mapping[str, str] | None = None) -> Path:
    """Where the settings file is, whether or not it exists."""
    environment = os.environ if environment is None else environment
    return Path(environment.get("WARMD_CONFIG") or "~/.config/warmd/warmd.toml").expanduser()


def load_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Read the settings file and the environment.

    Raises:
        UsageError: The file that `WARMD_CONFIG` names is missing, a file cannot be read, or a key or value
            is not what it should be.
    """
    environment = os.environ if environment is None else environment
    path = config_path(environment)
    settings = Settings()
    if path.exists() or environment.get("WARMD_CONFIG"):
        settings = _apply_table(settings, _read(path), str(path))
    return _apply_environment(settings, environment)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: expected UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from None


def _apply_table(settings: Settings, table: Mapping[str, Any], where: str) -> Settings:
    for section, values in table.items():
        _check_known(section, [item.name for item in fields(settings)], f"{where}: ", "section")
        if not isinstance(values, dict):
            raise UsageError(f"{where}: [{section}] must be a table")
        current = getattr(settings, section)
        for key, value in values.items():
            _check_known(key, [item.name for item in fields(current)], f"{where}: [{section}] ", "key")
            current = _set(current, key, value, f"{where}: [{section}] {key}")
        settings = replace(settings, **{section: current})
    return settings


def _check_known(name: str, known: list[str], where: str, what: str) -> None:
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0)
        raise UsageError(f"{where}unknown {what} {name!r}; the nearest known one is {nearest[0]!r}")


def _apply_environment(settings: Settings, environment: Mapping[str, str]) -> Settings:
    for section in fields(settings):
        current = getattr(settings, section.name)
        for item in fields(current):
            variable = f"WARMD_{section.name}_{item.name}".upper()
            if variable in environment:
                value = _parse(environment[variable], getattr(current, item.name), variable)
                current = _set(current, item.name, value, variable)
        settings = replace(settings, **{section.name: current})
    return settings


def _parse(text: str, like: Any, where: str) -> Any:
    if isinstance(like, bool):
        if text.lower() in ("1", "true", "yes", "on"):
            return True
        if text.lower() in ("0", "false", "no", "off"):
            return False
        raise UsageError(f"{where}: expected true or false")
    if isinstance(like, str):
        return text
    try:
        return type(like)(text)
    except ValueError:
        raise UsageError(f"{where}: expected {_TYPE_NAMES[type(like)]}, found {text!r}") from None


_TYPE_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}


def _set(section: Any, key: str, value: Any, where: str) -> Any:
    expected = type(getattr(section, key))
    if expected is float and type(value) is int:
        value = float(value)
    if type(value) is not expected:
        raise UsageError(f"{where}: expected {_TYPE_NAMES[expected]}, found {type(value).__name__}")
    minimum = next(item for item in fields(section) if item.name == key).metadata["minimum"]
    # Written so that NaN fails too.
    if minimum is not None and not minimum <= value < float("inf"):
        raise UsageError(f"{where}: expected at least {minimum:g}")
    return replace(section, **{key: value})
