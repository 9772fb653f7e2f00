"""Decides which directories to watch for a set of files."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

MAX_LINKS = 40
"""Links followed in one path before it counts as a loop, as in Linux."""


@dataclass(frozen=True, slots=True)
class Place:
    """A directory that matters, and the one that is watched for it.

    Attributes:
        directory: Where a name decides what one of the files is.
        watched: The directory itself, or while it is missing its nearest ancestor that exists.
        device: With `inode`, tells a directory from another that took its place; None when that is unknown.
        inode: See `device`.
    """

    directory: Path
    watched: Path
    device: int | None = None
    inode: int | None = None

    @property
    def is_present(self) -> bool:
        """Whether the directory exists."""
        return self.watched == self.directory


Arming = frozenset[Place]


def arming(files: Collection[Path]) -> Arming:
    """Every place that matters for these absolute paths. Never raises; may block on a network mount."""
    return frozenset(map(_find_place, directories_of(files)))


def watched_paths(armed: Arming) -> list[Path]:
    """The directories to watch, each once.

    The root is watched only for files in it. On macOS its events are those of the whole disk, and what could
    happen there to others (`/tmp` linked elsewhere, a new top-level folder) can wait for the slow tick.
    """
    return sorted({place.watched for place in armed if place.is_present or place.watched.name})


def returned(before: Arming, after: Arming) -> list[Path]:
    """Directories that were missing, or others, `before`, and are there now."""
    known = {place.directory: place for place in before}
    return sorted(
        place.directory for place in after if place.is_present and known.get(place.directory, place) != place
    )


def without_identity(armed: Arming, directories: Iterable[Path]) -> Arming:
    """Forget which directories these were.

    A directory that is deleted and made again often gets its old inode number, while its watch is dead.
    """
    lost = frozenset(directories)
    return frozenset(
        replace(place, device=None, inode=None) if place.watched in lost else place for place in armed
    )


def directories_of(files: Collection[Path]) -> frozenset[Path]:
    """The directories whose names decide what the files are: of each link on the way, and of the last target.

    They need not exist.
    """
    return frozenset(directory for path in files for directory in _directories_on_the_way(path))


def _directories_on_the_way(path: Path) -> set[Path]:
    """Walk a path as the system does, and note each directory in which a name could be pointed elsewhere."""
    found: set[Path] = set()
    current, parts, links = Path(path.anchor), deque(path.parts[1:]), 0
    while parts:
        part = parts.popleft()
        if part == "..":
            # Right, as links have been followed: `current` is a real directory.
            current = current.parent
            continue
        target = _link_target(current / part) if links < MAX_LINKS else None
        if target is None:
            if not parts:
                found.add(current)
            current = current / part
            continue
        links += 1
        if current.name:
            found.add(current)
        current, rest = _follow(current, target)
        parts.extendleft(reversed(rest))
    return found


def _follow(directory: Path, target: Path) -> tuple[Path, tuple[str, ...]]:
    """Where a link in a directory leads: where to walk on from, and the names to walk."""
    return (Path(target.anchor), target.parts[1:]) if target.is_absolute() else (directory, target.parts)


def _link_target(path: Path) -> Path | None:
    try:
        return path.readlink()
    except (OSError, ValueError):
        return None


def _find_place(directory: Path) -> Place:
    for watched in (directory, *directory.parents):
        status = _status(watched)
        if status is not None and stat.S_ISDIR(status.st_mode):
            return Place(directory, watched, status.st_dev, status.st_ino)
    return Place(directory, Path(directory.anchor))


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (OSError, ValueError):
        return None
