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


def rotated(path: Path) -> list[Path]:
    """The files of a log that are there, oldest first: `warmd.jsonl.2`, `warmd.jsonl.1`, `warmd.jsonl`."""
    older = [
        (int(number), sibling)
        for sibling in path.parent.glob(f"{path.name}.*")
        if (number := sibling.name.removeprefix(f"{path.name}.")).isdecimal()
    ]
    files = [sibling for _, sibling in sorted(older, reverse=True)]
    return [file for file in (*files, path) if file.is_file()]


@dataclass(slots=True)
class LogReader:
    """Reads a log once and then, if asked to, goes on with what is added, across rotations.

    A file is told by its inode: what a rotation renames is the same file, and stays read.

    Attributes:
        path: The newest file; it may be missing for now.
        sleep: Waits for so many seconds.
    """

    path: Path
    sleep: Callable[[float], None] = time.sleep
    _read: dict[int, int] = field(default_factory=dict)
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
            self._read = {inode: self._read.get(inode, 0) for inode in files}
            for inode, file in files.items():
                yield from self._rest_of(inode, file)

    def _rest_of(self, inode: int, file: BinaryIO) -> Iterator[bytes]:
        if os.fstat(file.fileno()).st_size < self._read[inode]:
            # Somebody has emptied it.
            self._read[inode] = 0
        file.seek(self._read[inode])
        for line in file:
            # The rest of a line may still be on its way.
            if line.endswith(b"\n"):
                self._read[inode] += len(line)
                yield line[:-1]

    def follow(self) -> Iterator[bytes]:
        """All lines, and then each new one as it comes, for ever."""
        while True:
            yield from self.lines()
            self.sleep(PAUSE)
