"""What a watcher tells."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Look:
    """It is time to look.

    Attributes:
        still_changing: The ceiling was reached before the files were quiet, so they may be half written.
        is_recheck: The files look as they did; where times are coarse they may have changed all the same.
    """

    still_changing: bool = False
    is_recheck: bool = False


@dataclass(frozen=True, slots=True)
class Rearmed:
    """A directory that had vanished, been replaced or not been there yet is watched now."""

    directory: Path


@dataclass(frozen=True, slots=True)
class Degraded:
    """The system's events cannot be had at present; changes are found by polling until they can."""

    reason: str


@dataclass(frozen=True, slots=True)
class WatchStatistics:
    """What a watcher has done and does.

    Attributes:
        directories: What is watched now.
        armings: How often a watch was begun.
        batches: How often events came.
        looks: How often the caller was told to look.
        is_polling: Changes are found by polling, by choice or because events cannot be had.
        last_event_at: When the system last reported anything in these folders, in seconds since the epoch.
        last_check_at: When the files were last compared with what was seen.
        missed_event_at: When a comparison last found a change that no event had announced in time.
    """

    directories: tuple[Path, ...]
    armings: int
    batches: int
    looks: int
    is_polling: bool
    last_event_at: float | None = None
    last_check_at: float | None = None
    missed_event_at: float | None = None
