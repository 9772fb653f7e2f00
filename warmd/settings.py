"""Settings: what can be set, what each accepts, and what it is when nobody says.

`warmd.config` reads them. Every key is one of `config/warmd.toml` too, with its default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from warmd.disk.bounds import parse_max_bytes
from warmd.events import Level
from warmd.memory.size import parse_limit, parse_size

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
    check_path_or_empty(text)


def check_path_or_empty(text: str) -> None:
    """Check that a text can be a path, or is empty.

    Raises:
        ValueError: Says what was expected.
    """
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
        check_path_or_empty(text)


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
    max_pause: float = _setting(
        60.0, "a warming that live requests leave no time for is told of after this long, in seconds", 0.05
    )
    timeout: float = _setting(3600.0, "a warming that takes longer is stopped, in seconds", 1)
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
    path: str = _setting("", "the folder; empty for the system's own place", check=check_path_or_empty)
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
        "", "the folder of the control socket; empty for the system's own place", check=check_path_or_empty
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


PATHS = (("prompts", "path"), ("state", "dir"), ("log", "file"), ("store", "path"))
"""Section and key of the settings that are paths."""
