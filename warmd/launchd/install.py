"""What installing writes: the settings, the folders, the LaunchAgent's file. Loading it is `service`'s."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from warmd.config import config_path
from warmd.errors import UsageError, WarmdError
from warmd.files.atomic import PRIVATE, TEMPORARY, TEMPORARY_END, write_atomically
from warmd.launchd.agent import Plist, find_faults, read_plist, to_bytes
from warmd.launchd.packaged import read_packaged

PLIST_MODE = 0o644
"""launchd refuses a file that others may write."""


class RootError(UsageError):
    """`sudo warmd install`."""

    def __init__(self) -> None:
        super().__init__(
            "run this as yourself, without sudo: a LaunchAgent belongs to a user, and root has none"
        )


class CannotChangeError(WarmdError):
    """A file or folder of the installation cannot be made, replaced or removed."""

    def __init__(self, path: Path | str, error: OSError) -> None:
        super().__init__(f"cannot change {error.filename or path}: {error.strerror or error}")


class FaultyPlistError(WarmdError):
    """What would be written is against our own rules."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__(f"the LaunchAgent would not work: {'; '.join(faults)}")


def refuse_root(uid: int, platform: str) -> None:
    """Stop root on a Mac.

    Raises:
        RootError: It is root.
    """
    if uid == 0 and platform == "darwin":
        raise RootError


def read_installed(path: Path) -> Plist | None:
    """The file that is there, None if there is none.

    Raises:
        UnreadablePlistError: It is no plist of ours, or cannot be read.
    """
    try:
        return read_plist(path)
    except FileNotFoundError:
        return None


def check(plist: Plist, path: Path) -> None:
    """Hold a plist against our rules.

    Raises:
        FaultyPlistError: It breaks some.
    """
    if faults := find_faults(plist, path):
        raise FaultyPlistError(faults)


def write_settings() -> Path | None:
    """Write the settings file with every line commented out, unless there is one.

    Returns:
        Its path, or None if it was there.

    Raises:
        CannotChangeError: It cannot be written.
    """
    path = config_path()
    if os.path.lexists(path):
        return None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = comment_out(read_packaged("warmd.toml").decode("utf-8"))
        write_atomically(path, text.encode("utf-8"), PRIVATE)
    except OSError as error:
        raise CannotChangeError(path, error) from None
    return path


def comment_out(sample: str) -> str:
    """The sample with its values as comments, so that a later version's better defaults count."""
    lines = [f"# {line}" if line and line[0] not in "#[" else line for line in sample.splitlines()]
    return "\n".join([*lines, ""])


def make_folders(*folders: Path) -> None:
    """Make folders that nobody else can look into, unless they are there.

    Raises:
        CannotChangeError: One cannot be made.
    """
    for folder in folders:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise CannotChangeError(folder, error) from None


def check_can_write(path: Path, content: bytes) -> None:
    """Try to write as much beside a file, or what it links to, as will take its place; leaves but the folder.

    Raises:
        CannotChangeError: It cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=TEMPORARY, suffix=TEMPORARY_END) as trial:
            trial.write(content)
            trial.flush()
    except OSError as error:
        # The trial file's name would mean nothing to a person.
        raise CannotChangeError(_named(path, target), OSError(error.errno, error.strerror)) from None


def _named(path: Path, target: Path) -> str:
    return f"{path}, a link to {target}" if path.is_symlink() else str(path)


def write_plist(path: Path, plist: Plist) -> None:
    """Replace the file at once.

    Raises:
        CannotChangeError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, to_bytes(plist), PLIST_MODE)
    except OSError as error:
        raise CannotChangeError(path, error) from None
