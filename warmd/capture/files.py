"""Writing files whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

PRIVATE = 0o600
TEMPORARY, TEMPORARY_END = ".warmd-", ".tmp"
"""How the names begin and end of what is there for a moment only, unless the process is killed in it."""
LEFT_OVER = 60.0
"""Seconds after which nobody is at work on such a thing any more."""
# What `tempfile` puts between: https://github.com/python/cpython/blob/main/Lib/tempfile.py
_TEMPORARY_NAME = re.compile(rf"{re.escape(TEMPORARY)}[a-z0-9_]{{8}}{re.escape(TEMPORARY_END)}")
_UNSAFE = re.compile(r"[^\w.+@-]+")
_LONGEST = 80


def safe_name(name: str) -> str:
    """A name for files out of an entry's."""
    # One form on every system, and bytes that leave room for a suffix in what file systems take.
    plain = _UNSAFE.sub("-", unicodedata.normalize("NFC", name)).strip("-.")
    while len(plain.encode()) > _LONGEST:
        plain = plain[:-1].rstrip("-.")
    return plain or "entry"


def is_there(path: Path) -> bool:
    """True for what exists; what may not be looked at is as good as not there."""
    # Until Python 3.14 a path's own method raises in a folder that may not be entered.
    return os.path.exists(path)  # noqa: PTH110


def file_mode(path: Path) -> int:
    """The mode of a file; for one that is not there, that of a private one."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return PRIVATE


def write_atomically(path: Path, data: bytes, mode: int, check: Callable[[], None] = lambda: None) -> None:
    """Replace a file, or what a symlink leads to, at once; `check` may refuse at the last moment.

    Raises:
        OSError: It cannot be written; it is as it was.
    """
    target = Path(os.path.realpath(path))
    try:
        _write(target, data, mode, check)
    except OSError as error:
        # The temporary file's name would mean nothing to a person.
        raise OSError(error.errno, error.strerror, str(path)) from None
    _sync(target.parent)


def _write(target: Path, data: bytes, mode: int, check: Callable[[], None]) -> None:
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=TEMPORARY, suffix=TEMPORARY_END)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor has no path
            file.write(data)
            file.flush()
            _take_over(descriptor, target, mode)
            os.fsync(descriptor)
        check()
        os.replace(name, target)  # noqa: PTH105 - both are text
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def remove_left_over(folder: Path, older_than: float = LEFT_OVER) -> None:
    """Remove what killed processes have left in a folder of ours, as far as that is possible.

    Args:
        folder: Where.
        older_than: Seconds.
    """
    with contextlib.suppress(OSError):
        for path in list(folder.iterdir()):
            with contextlib.suppress(OSError):
                if _TEMPORARY_NAME.fullmatch(path.name) and path.lstat().st_mtime <= time.time() - older_than:
                    path.unlink()


def _take_over(descriptor: int, target: Path, mode: int) -> None:
    # Only root may give files away, and only to a group that one is in.
    with contextlib.suppress(OSError):
        found = target.stat()
        os.fchown(descriptor, -1, found.st_gid)
    os.fchmod(descriptor, mode)


def _sync(folder: Path) -> None:
    """Make a rename last through a power cut, where the file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class Journal:
    """Writes files, and takes it all back unless it is told to keep it."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def write(self, path: Path, data: bytes, mode: int) -> None:
        """Write a file, in a folder that is made if need be.

        Raises:
            OSError: It cannot be written.
        """
        self._make_folder(path.parent, private=not mode & 0o077)
        before = path.read_bytes() if path.exists() else None
        if before == data:
            return
        write_atomically(path, data, mode)
        if before is None:
            self._undo.append(lambda: path.unlink(missing_ok=True))
        else:
            self._undo.append(lambda: write_atomically(path, before, mode))

    def _make_folder(self, folder: Path, *, private: bool) -> None:
        if not folder.is_dir():
            folder.mkdir(mode=0o700 if private else 0o777, parents=True)
            self._undo.append(folder.rmdir)

    def keep(self) -> None:
        """What has been written stays."""
        self._undo.clear()

    def take_back(self) -> None:
        """Undo, the last first, as far as that is possible."""
        while self._undo:
            with contextlib.suppress(OSError):
                self._undo.pop()()


@contextlib.contextmanager
def journal() -> Iterator[Journal]:
    """A journal that takes everything back when the block fails."""
    found = Journal()
    try:
        yield found
    except BaseException:
        found.take_back()
        raise
    found.keep()
