"""The state folder belongs to one daemon at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from warmd.control.errors import AnotherDaemonError, NoSocketError

LOCK_NAME = "daemon.lock"


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Own a state folder, which is made if need be, until the end of the block or of the process.

    The lock goes with the process, however that ends, so there is no such thing as a stale one.

    Raises:
        AnotherDaemonError: Another daemon owns it.
        NoSocketError: It cannot be used: missing and not to be made, read-only, full, not ours.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise _unusable(folder, error) from None
    try:
        _lock(lock, folder)
        yield
    finally:
        os.close(lock)


def _lock(lock: int, folder: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode("ascii"))
    except BlockingIOError:
        raise AnotherDaemonError(folder, _holder(lock)) from None
    except OSError as error:
        raise _unusable(folder, error) from None


def _holder(lock: int) -> int | None:
    """The pid that the owner wrote; None in the moment before it does."""
    text = os.pread(lock, 32, 0).strip()
    return int(text) if text.isdigit() else None


def _unusable(folder: Path, error: OSError) -> NoSocketError:
    return NoSocketError(f"the state folder {folder} cannot be used: {error.strerror or error}")
