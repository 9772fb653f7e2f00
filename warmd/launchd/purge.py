"""Removes what a daemon leaves in its folders, and nothing else: a folder may be anybody's choice."""

from __future__ import annotations

import contextlib
import re
import stat
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from warmd import rates
from warmd.config import expand_home
from warmd.control.errors import AnotherDaemonError
from warmd.control.folder import LOCK_NAME, claimed
from warmd.control.place import is_moved, socket_path
from warmd.crash import quarantine, starts, suspects
from warmd.disk.errors import LockedError
from warmd.disk.files import LOCK_NAME as STORE_LOCK_NAME
from warmd.disk.files import Files
from warmd.disk.shelf import Shelf
from warmd.errors import CannotStartError, UsageError
from warmd.files.atomic import remove_left_over
from warmd.files.state import Kind, is_cut_short, read_json

OWN_NAME = "warmd"
"""Only a folder of this name was made for warmd alone."""

_JSON: Mapping[str, Kind] = {
    starts.FILE_NAME: starts.KIND,
    quarantine.FILE_NAME: suspects.KIND,
    rates.FILE_NAME: rates.KIND,
}
"""Files that warmd keeps."""
_LOCK_TEXT = re.compile(rb"\d{0,20}\n?")
_SYSTEMS = ("/System", "/bin", "/dev", "/etc", "/proc", "/sbin", "/sys", "/usr")
_SYSTEMS_OWN = ("/private/etc", "/private/tmp", "/private/var", "/private/var/tmp", "/var/tmp")


class NotForPurgingError(UsageError):
    """A folder that is not for warmd, whatever the settings say."""

    def __init__(self, folder: Path, what: str) -> None:
        super().__init__(f"--purge: {folder} is {what}: nothing is removed; `warmd uninstall` goes without")


class InUseError(CannotStartError):
    """A daemon has one of the folders."""

    def __init__(self, who: str) -> None:
        super().__init__(f"{who}; stop it first")


@dataclass(frozen=True, slots=True)
class Purged:
    """What a purge has come to.

    Attributes:
        removed: Things in the state folder that are gone.
        left: What is still in there, by name.
        files: Files of warm state that are gone.
    """

    removed: int = 0
    left: tuple[str, ...] = ()
    files: int = 0


def check_folder(folder: Path) -> None:
    """Stop where a folder is none that may be looked through for files to remove.

    Raises:
        NotForPurgingError: It is the home folder, one above it, or the system's.
    """
    home = expand_home("~").resolve()
    folder = folder.resolve()
    if folder == home:
        raise NotForPurgingError(folder, "the home folder")
    is_system = (
        folder in home.parents
        or len(folder.parts) <= 2
        or str(folder) in _SYSTEMS_OWN
        or (folder.name != OWN_NAME and any(folder.is_relative_to(root) for root in _SYSTEMS))
    )
    if is_system:
        raise NotForPurgingError(folder, "a folder of the system")


def purge(state: Path, store: Path) -> Purged:
    """Remove warmd's files from both folders; the folders too, where they are warmd's own and empty then.

    What is there in place of a folder is nobody's that warmd knows, and stays.

    Nothing is removed before both are ours: a daemon may run in one of them.

    Raises:
        OSError: Something cannot be removed.
        InUseError: A daemon runs on one of them.
        NoSocketError: The state folder is not ours.
        NotForPurgingError: A folder is not for this.
    """
    check_folder(state)
    check_folder(store)
    # Claiming a folder writes into it.
    before = _names(state)
    count = 0
    with contextlib.ExitStack() as stack:
        if state.is_dir():
            _check_lock(state)
            _enter(stack, claimed(state), f"a daemon runs on the state folder {state}")
        if store.is_dir():
            _enter(stack, Files(store).locked(), f"a daemon runs that keeps its warm state in {store}")
            count = _purge_store(Files(store))
        if state.is_dir():
            _purge_state(state)
    left = _names(state)
    # The store's own place is in a folder of warmd's.
    own = [folder for folder in (state, store) if folder.name == OWN_NAME]
    own += [store, store.parent] if store.parent.name == OWN_NAME else []
    for folder in own:
        _remove_empty(folder)
    return Purged(len({*before} - {*left}), left, count)


def _enter(stack: contextlib.ExitStack, lock: AbstractContextManager[None], who: str) -> None:
    try:
        stack.enter_context(lock)
    except AnotherDaemonError as error:
        raise InUseError(f"{who} (pid {error.pid})" if error.pid is not None else who) from None
    except LockedError:
        raise InUseError(who) from None


def _purge_store(files: Files) -> int:
    shelf = Shelf(files)
    shelf.refresh()
    names = [*(record.name for record in shelf.records), *(item.name for item in shelf.damaged)]
    shelf.remove(names)
    lock = files.folder / STORE_LOCK_NAME
    found = lock.lstat()
    if stat.S_ISREG(found.st_mode) and not found.st_size:
        lock.unlink()
    return len(names)


def _check_lock(folder: Path) -> None:
    """The lock is warmd's, or is not there: claiming a folder writes into it."""
    path = folder / LOCK_NAME
    with contextlib.suppress(FileNotFoundError):
        found = path.lstat()
        is_small = stat.S_ISREG(found.st_mode) and found.st_size < 32
        if not (is_small and _LOCK_TEXT.fullmatch(path.read_bytes())):
            raise NotForPurgingError(path, "not warmd's")


def _purge_state(folder: Path) -> None:
    socket = socket_path(folder)
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(socket.lstat().st_mode):
            socket.unlink()
    if is_moved(socket):
        with contextlib.suppress(OSError):
            socket.parent.rmdir()
    for name, kind in _JSON.items():
        path = folder / name
        # What is a link or no file is not warmd's: it writes neither.
        if not path.is_symlink() and (read_json(path, kind.is_ours, False) or is_cut_short(path, kind)):
            path.unlink()
    remove_left_over(folder, older_than=0.0)
    (folder / LOCK_NAME).unlink(missing_ok=True)


def _names(folder: Path) -> tuple[str, ...]:
    try:
        return tuple(sorted(path.name for path in folder.iterdir()))
    except (FileNotFoundError, NotADirectoryError):
        return ()


def _remove_empty(folder: Path) -> None:
    if folder.is_dir() and not _names(folder):
        # A link to a folder elsewhere, or where a disk is mounted: nothing of warmd's is left in it.
        with contextlib.suppress(OSError):
            folder.rmdir()
