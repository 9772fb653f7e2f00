"""What files look like from outside, cheap enough to ask after every event."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class FileSignature:
    """What one file looks like without reading it; all None while it cannot be reached.

    `target` is the path after following every link, so a link to an equally sized and old file differs.
    `ctime_ns` cannot be set by programs, so it tells a rewrite by a tool that restores `mtime_ns`.
    """

    path: Path
    target: str | None = None
    device: int | None = None
    inode: int | None = None
    size: int | None = None
    mtime_ns: int | None = None
    ctime_ns: int | None = None


Signature = tuple[FileSignature, ...]
"""What a set of files looks like; equal when nothing can be seen to have changed."""


def signature(files: Collection[Path]) -> Signature:
    """What the files look like now, links followed. Never raises; may block on a network mount."""
    return tuple(_file_signature(path) for path in files)


def unreachable(files: Collection[Path]) -> Signature:
    """What files look like that cannot be reached."""
    return tuple(map(FileSignature, files))


def _file_signature(path: Path) -> FileSignature:
    try:
        status, target = os.stat(path), os.path.realpath(path)  # noqa: PTH116 - no objects, as it runs often
    except (OSError, ValueError):
        return FileSignature(path)
    return FileSignature(
        path, target, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    )
