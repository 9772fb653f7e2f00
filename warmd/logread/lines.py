"""The lines of a rotated log file, oldest first, and those to come."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

PAUSE = 0.25
"""Seconds between two looks while following: somebody is watching a terminal."""


LONGEST_LINE = 16 << 20
"""Bytes of a line that are held at most: no file of ours has a longer one."""
LONGEST_NUMBER = 10
HEAD = 256
"""Bytes of a file's beginning that tell it from others: lines begin with the time in microseconds."""


@dataclass(slots=True)
class _Mark:
    """How far a file has been read, and how what was read begins."""

    position: int = 0
    head: bytes = b""


def _whole_lines(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Each line that has its line break, without it, and how many bytes it took; long ones are cut."""
    while line := file.readline(LONGEST_LINE):
        nbytes, piece = len(line), line
        while not piece.endswith(b"\n"):
            if not (piece := file.readline(LONGEST_LINE)):
                # The rest of a line may still be on its way.
                return
            nbytes += len(piece)
        yield line.removesuffix(b"\n"), nbytes


def rotated(path: Path) -> list[Path]:
    """The files of a log that are there, oldest first: `warmd.jsonl.2`, `warmd.jsonl.1`, `warmd.jsonl`."""
    older = [
        (int(number), sibling)
        for sibling in _siblings(path.parent)
        if (number := sibling.name.removeprefix(f"{path.name}.")).isascii()
        and number.isdigit()
        and len(number) < LONGEST_NUMBER
        and number != sibling.name
    ]
    files = [sibling for _, sibling in sorted(older, reverse=True)]
    return [file for file in (*files, path) if file.is_file()]


def _siblings(folder: Path) -> list[Path]:
    # Not by a pattern: brackets and stars in the file's own name would be part of it.
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


@dataclass(slots=True)
class LogReader:
    """Reads a log once and then, if asked to, goes on with what is added, across rotations.

    A file is told by its inode and by how it begins: what a rotation renames is the same file, and stays
    read. The inode alone does not tell: a file that is deleted and made again, or emptied and filled again,
    may have the old one's.

    Attributes:
        path: The newest file; it may be missing for now.
        sleep: Waits for so many seconds.
    """

    path: Path
    sleep: Callable[[float], None] = time.sleep
    _read: dict[int, _Mark] = field(default_factory=dict)
    """How far each file has been read, by inode."""

    def lines(self) -> Iterator[bytes]:
        """Every whole line that is there and has not been read, without its line break.

        Raises:
            OSError: A file cannot be read.
        """
        with ExitStack() as stack:
            files: dict[int, BinaryIO] = {}
            # All are opened before any is read: a rotation meanwhile renames them under our hands.
            for path in rotated(self.path):
                try:
                    file: BinaryIO = stack.enter_context(path.open("rb"))
                except FileNotFoundError:
                    continue
                files.setdefault(os.fstat(file.fileno()).st_ino, file)
            # Those that are gone are forgotten: the system gives their numbers to new files.
            self._read = {inode: self._read.get(inode, _Mark()) for inode in files}
            for inode, file in files.items():
                yield from self._rest_of(inode, file)

    def _rest_of(self, inode: int, file: BinaryIO) -> Iterator[bytes]:
        mark = self._read[inode]
        start = file.read(HEAD)
        if not start.startswith(mark.head) or os.fstat(file.fileno()).st_size < mark.position:
            # Somebody has emptied it, or it is another file.
            mark = self._read[inode] = _Mark()
        file.seek(mark.position)
        for line, nbytes in _whole_lines(file):
            mark.position += nbytes
            mark.head = start[: mark.position]
            yield line

    def follow(self) -> Iterator[bytes]:
        """All lines, and then each new one as it comes, for ever."""
        while True:
            yield from self.lines()
            self.sleep(PAUSE)
