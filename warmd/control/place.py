"""Where the control socket is: daemon and commands each work it out from the state folder alone."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from pathlib import Path

import platformdirs

from warmd.config import expand_home, system_folder
from warmd.settings import StateSettings

SOCKET_NAME = "control.sock"
LONGEST_PATH = 103 if sys.platform == "darwin" else 107
"""Bytes of a socket's path that the system takes, without the final NUL."""
# Not what TMPDIR says: a daemon that launchd started may have another one than the user's shell.
SHORT_PARENT = Path("/tmp")


def state_folder(settings: StateSettings) -> Path:
    """The folder for what outlives the process, and for the socket; it need not exist.

    Raises:
        UsageError: It is below the home folder, and there is none.
    """
    if settings.dir:
        folder = expand_home(settings.dir)
    else:
        folder = system_folder(lambda: platformdirs.user_state_path("warmd"))
    return Path(os.path.realpath(folder))


def socket_path(folder: Path) -> Path:
    """The socket of a state folder: in it or, where that path is too long, in a short folder of its own."""
    path = folder / SOCKET_NAME
    if len(os.fsencode(path)) <= LONGEST_PATH:
        return path
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return SHORT_PARENT / f"warmd-{os.getuid()}-{digest}" / SOCKET_NAME


def is_moved(path: Path) -> bool:
    """True for a socket that is not in its state folder, because that path is too long."""
    return path.parent.parent == SHORT_PARENT and path.parent.name.startswith("warmd-")


def is_private(folder: Path) -> bool:
    """True when a folder is ours and nobody else gets in: anybody may make folders in a temp folder.

    Raises:
        OSError: It cannot be looked at.
    """
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
