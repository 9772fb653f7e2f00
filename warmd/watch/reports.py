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
    """

    directories: tuple[Path, ...]
    armings: int
    batches: int
    looks: int
    is_polling: bool
