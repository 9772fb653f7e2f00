"""Reading files that a user named: regular ones only, bounded, and never waiting for anything."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import Any, TypeGuard

_NO_FILE_NAME = re.compile("[\0\ud800-\udfff]")
BOM = b"\xef\xbb\xbf"


class UnreadableError(Exception):
    """A file cannot be read; the message says why without naming it."""


def is_file_name(value: Any) -> TypeGuard[str]:
    """True for what could name a file."""
    # Half a surrogate pair is reported as such; no file system takes it, and no watcher may be given it.
    return isinstance(value, str) and bool(value) and not _NO_FILE_NAME.search(value)


def read_file(path: Path, max_bytes: int, bound: str = "[prompts] max_bytes allows") -> bytes:
    """Read a whole regular file.

    Args:
        path: Which.
        max_bytes: The most that is read.
        bound: Says in the message where that bound comes from.

    Raises:
        UnreadableError: It is missing, denied, no regular file, or larger than `max_bytes`.
    """
    try:
        # Without O_NONBLOCK, opening a FIFO would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise UnreadableError(_reason(error)) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableError(f"expected a regular file, found {_file_kind(status.st_mode)}")
        # A file may grow while it is read: one byte more than allowed tells.
        data = b"" if status.st_size > max_bytes else _read(descriptor, max_bytes + 1)
    except OSError as error:
        raise UnreadableError(_reason(error)) from None
    finally:
        os.close(descriptor)
    if status.st_size > max_bytes or len(data) > max_bytes:
        raise UnreadableError(f"larger than the {max_bytes:,} bytes that {bound}")
    return data


def _read(descriptor: int, max_bytes: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as file:
        data: bytes | None = file.read(max_bytes)
    if data is None:
        # /proc and some network file systems have regular files that are read like pipes.
        raise UnreadableError("it cannot be read without waiting")
    return data


def decode(data: bytes) -> str:
    """Decode UTF-8, with or without byte order mark.

    Raises:
        UnreadableError: Names the offset of the first byte that is not UTF-8.
    """
    start = len(BOM) if data.startswith(BOM) else 0
    try:
        return data[start:].decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableError(
            f"expected UTF-8, found another encoding at byte {start + error.start}"
        ) from None


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, PermissionError):
        return (
            "permission denied (on macOS, the program may need access to this folder in Privacy & Security)"
        )
    if isinstance(error, OSError) and error.errno == errno.ENXIO:
        return "expected a regular file, found a socket or a device"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return "not a usable path"


def _file_kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")
