"""Several files that are written together, and their names."""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

from warmd.files.atomic import write_atomically

_UNSAFE = re.compile(r"[^\w.+@-]+")
_LONGEST = 80


def safe_name(name: str) -> str:
    """A name for files out of an entry's."""
    # One form on every system, and bytes that leave room for a suffix in what file systems take.
    plain = _UNSAFE.sub("-", unicodedata.normalize("NFC", name)).strip("-.")
    while len(plain.encode()) > _LONGEST:
        plain = plain[:-1].rstrip("-.")
    return plain or "entry"


def file_name(folder: str, name: str, number: int, suffix: str) -> str:
    """What we call the first, second, … file of a kind for an entry, relative to the prompts file."""
    return f"{folder}/{safe_name(name)}{'' if number == 1 else f'-{number}'}{suffix}"


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
