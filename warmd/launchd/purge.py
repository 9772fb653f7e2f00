"""Removes what a daemon leaves in its state folder, and nothing else: the folder may be anybody's choice."""

from __future__ import annotations

import contextlib
from pathlib import Path

from warmd import rates
from warmd.capture.files import remove_left_over
from warmd.control.folder import LOCK_NAME, claimed
from warmd.control.place import SOCKET_NAME, is_moved, socket_path
from warmd.crash import quarantine, starts
from warmd.disk.files import Files
from warmd.disk.shelf import Shelf

NAMES = (LOCK_NAME, SOCKET_NAME, starts.FILE_NAME, quarantine.FILE_NAME, rates.FILE_NAME)
"""Files that warmd keeps there."""


def purge_store(folder: Path) -> int:
    """Remove warm state on disk; how many files that were.

    Raises:
        OSError: Something cannot be removed.
    """
    shelf = Shelf(Files(folder))
    shelf.refresh()
    names = [*(record.name for record in shelf.records), *(item.name for item in shelf.damaged)]
    shelf.remove(names)
    return len(names)


def purge(folder: Path) -> tuple[str, ...]:
    """Remove warmd's files, and the folder if nothing else is in it.

    Returns:
        What is still there, by name.

    Raises:
        OSError: Something cannot be removed.
        AnotherDaemonError: A daemon runs on that folder.
        NoSocketError: It is not ours.
    """
    if not folder.is_dir():
        return ()
    socket = socket_path(folder)
    with claimed(folder):
        for path in (*(folder / name for name in NAMES), socket):
            path.unlink(missing_ok=True)
        remove_left_over(folder, older_than=0.0)
    if is_moved(socket):
        with contextlib.suppress(OSError):
            socket.parent.rmdir()
    left = sorted(path.name for path in folder.iterdir())
    if not left:
        folder.rmdir()
    return tuple(left)
