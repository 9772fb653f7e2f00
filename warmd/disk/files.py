"""The folder: the few things that are done to it, each whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from warmd.disk.errors import LockedError
from warmd.disk.record import is_record_name

LOCK_NAME = "writer.lock"
_TEMPORARY = ".writing-"


@dataclass(frozen=True, slots=True)
class Listed:
    """A file as the folder lists it: bytes, and its time of change in seconds since the epoch."""

    name: str
    nbytes: int
    changed_at: float


class Files:
    """The files of state in one folder. Safe to use from several threads.

    Everything raises `OSError` where the system refuses.

    Args:
        folder: It need not exist; it is made when something is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def listed(self) -> list[Listed]:
        """Every file of state; none where there is no folder."""
        found: list[Listed] = []
        try:
            self._check_owner()
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    # Another process may remove it in this moment.
                    with contextlib.suppress(FileNotFoundError):
                        if is_record_name(entry.name) and entry.is_file(follow_symlinks=False):
                            info = entry.stat(follow_symlinks=False)
                            found.append(Listed(entry.name, info.st_size, info.st_mtime))
        except FileNotFoundError:
            return []
        return found

    def read(self, name: str) -> bytes:
        """All of a file."""
        return (self.folder / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """Write a file: it is there whole under its name, or not at all, whenever this ends."""
        temporary = self.folder / f"{_TEMPORARY}{name}"
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:  # noqa: PTH123 - private from the first moment
                self.fill(file.fileno(), content)
                self.sync(file.fileno())
            self.rename(temporary, self.folder / name)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        self.sync_folder()

    def fill(self, file: int, content: bytes) -> None:
        """Write content into an open file."""
        left = memoryview(content)
        while left:
            left = left[os.write(file, left) :]

    def sync(self, file: int) -> None:
        """Have an open file on the disk: a name must never be there before its content."""
        os.fsync(file)

    def rename(self, temporary: Path, path: Path) -> None:
        """Give a file its name."""
        temporary.replace(path)

    def sync_folder(self) -> None:
        """Have the names on the disk as well."""
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def remove(self, name: str) -> None:
        """Remove a file; one that is not there is no error."""
        (self.folder / name).unlink(missing_ok=True)

    def renamed(self, name: str, new: str) -> bool:
        """Give a file another name; False where there is no such file."""
        try:
            self.rename(self.folder / name, self.folder / new)
        except FileNotFoundError:
            return False
        return True

    def touch(self, name: str, now: float) -> None:
        """Note that a file is wanted; one that is not there is no error."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(self.folder / name, (now, now))

    def free(self) -> int:
        """Bytes that are free on the disk."""
        folder = self.folder
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return shutil.disk_usage(folder).free

    def make_folder(self) -> None:
        """Make the folder, for nobody else to look into.

        Raises:
            PermissionError: There is one that belongs to somebody else.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._check_owner() & 0o077:
            self.folder.chmod(0o700)

    def _check_owner(self) -> int:
        """The folder's mode. Whoever owns it decides what is in it, and so what is served."""
        found = self.folder.stat()
        if found.st_uid != os.getuid():
            raise PermissionError(errno.EPERM, "it belongs to another user", str(self.folder))
        return stat.S_IMODE(found.st_mode)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be the one process that writes. What a dead one left half-written is removed.

        The lock goes with the process, however that ends, so there is no such thing as a stale one.

        Raises:
            LockedError: Another process is.
        """
        lock = self.lock()
        try:
            yield
        finally:
            os.close(lock)

    def lock(self) -> int:
        """The same, until the file descriptor that is returned is closed.

        Raises:
            LockedError: Another process has it.
        """
        self.make_folder()
        lock = os.open(self.folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._remove_leftovers()
        except BlockingIOError:
            os.close(lock)
            raise LockedError from None
        except BaseException:
            os.close(lock)
            raise
        return lock

    def holds(self, lock: int) -> bool:
        """False when the lock is not the folder's any more: others may lock a new file of that name."""
        try:
            ours, there = os.fstat(lock), (self.folder / LOCK_NAME).stat()
        except OSError:
            return False
        return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)

    def _remove_leftovers(self) -> None:
        for path in self.folder.glob(f"{_TEMPORARY}*"):
            if is_record_name(path.name.removeprefix(_TEMPORARY)):
                path.unlink(missing_ok=True)
