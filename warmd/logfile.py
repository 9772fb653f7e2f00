"""A log file of bounded size, which outlives whatever happens to it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

import platformdirs

from warmd.config import expand_home, system_folder
from warmd.memory.size import parse_size
from warmd.settings import AUTO, LogSettings

FILE_NAME = "warmd.jsonl"


class LogFile:
    """Appends whole lines to a file, and looks before each whether it is still the one at its path.

    So a file that somebody renamed, deleted or emptied is followed at once. When a line does not fit any
    more, `warmd.jsonl` becomes `warmd.jsonl.1`, that becomes `.2`, and so on. For one thread at a time.

    Args:
        path: Of the current file; its folder is made if need be.
        max_bytes: The most that a file holds.
        keep: How many older ones there are at most.
    """

    def __init__(self, path: Path, max_bytes: int, keep: int) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._keep = keep
        self._file: int | None = None

    def write(self, text: str, patience: float = 0.0) -> None:
        """Append lines that end with a line break; all or nothing.

        Args:
            text: The lines.
            patience: Of no use here: a disk does not say whether it is busy.

        Raises:
            OSError: They could not be written.
        """
        data = text.encode("utf-8", "backslashreplace")
        if len(data) > self._max_bytes:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        file = self._current()
        size = os.fstat(file).st_size
        if size and size + len(data) > self._max_bytes:
            file = self._rotate(file)
            size = os.fstat(file).st_size
        _append(file, data, size)

    def close(self) -> None:
        """Let go of the file; the next line opens it again."""
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)

    def _current(self) -> int:
        """The file at the path, open."""
        if self._file is not None and _is_at(self._file, self.path):
            return self._file
        self.close()
        self._file = _open(self.path)
        return self._file

    def _rotate(self, file: int) -> int:
        try:
            self._shift()
        except OSError:
            # A folder that takes no other names: better to lose the old lines than to have no bound.
            os.ftruncate(file, 0)
        return self._current()

    def _shift(self) -> None:
        for number in range(self._keep, 0, -1):
            older, newer = self._sibling(number), self._sibling(number - 1)
            with contextlib.suppress(FileNotFoundError):
                newer.replace(older)
        if not self._keep:
            self.path.unlink()
        # Of a time when more were kept.
        number = self._keep + 1
        while self._sibling(number).is_file():
            self._sibling(number).unlink()
            number += 1

    def _sibling(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path


def log_file_path(settings: LogSettings) -> Path | None:
    """Where the log file is, whether or not it exists; None when none is wanted.

    Raises:
        UsageError: It is below the home folder, and there is none.
    """
    if settings.file == AUTO:
        return system_folder(lambda: platformdirs.user_log_path("warmd")) / FILE_NAME
    return expand_home(settings.file).absolute() if settings.file else None


def open_log_file(settings: LogSettings) -> LogFile | None:
    """The log file of some settings; it is made with the first line.

    Raises:
        UsageError: As `log_file_path`.
    """
    path = log_file_path(settings)
    return LogFile(path, parse_size(settings.max_bytes), settings.keep) if path is not None else None


def _open(path: Path) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # O_NONBLOCK: opening a FIFO would wait for a reader.
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    file = os.open(path, flags, 0o600)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "expected a regular file")
        if status.st_size and os.pread(file, 1, status.st_size - 1) != b"\n":
            # Half a line of a process that was killed.
            _append(file, b"\n", status.st_size)
    except BaseException:
        os.close(file)
        raise
    return file


def _is_at(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _append(file: int, data: bytes, size: int) -> None:
    done = 0
    try:
        while done < len(data):
            done += os.write(file, data[done:])
    except OSError:
        if done:
            # A full disk takes a part: no half lines.
            with contextlib.suppress(OSError):
                os.ftruncate(file, size)
        raise
