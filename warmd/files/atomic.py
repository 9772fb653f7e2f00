"""Writing files whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

PRIVATE = 0o600
TEMPORARY, TEMPORARY_END = ".warmd-", ".tmp"
"""How the names begin and end of what is there for a moment only, unless the process is killed in it."""
LEFT_OVER = 60.0
"""Seconds after which nobody is at work on such a thing any more."""
# What `tempfile` puts between: https://github.com/python/cpython/blob/main/Lib/tempfile.py
_TEMPORARY_NAME = re.compile(rf"{re.escape(TEMPORARY)}[a-z0-9_]{{8}}{re.escape(TEMPORARY_END)}")


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
