"""Which entries a person means who wants them warmed again."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from warmd.errors import WarmdError
from warmd.prompts.document import Document, Entry


class UnknownEntryError(WarmdError):
    """No entry has this name."""

    def __init__(self, name: str, known: Collection[str]) -> None:
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0)
        hint = f"the nearest is {nearest[0]!r}" if nearest else "there are no entries"
        super().__init__(f"no entry is named {name[:80]!r}; {hint}")


def choose(document: Document | None, names: Collection[str]) -> list[Entry]:
    """The entries of these names, or all of them where no name is given.

    Raises:
        UnknownEntryError: There is none of a name.
    """
    entries = {entry.name: entry for entry in (document.entries if document else ())}
    for name in names:
        if name not in entries:
            raise UnknownEntryError(name, entries)
    return [entry for entry in entries.values() if not names or entry.name in names]
