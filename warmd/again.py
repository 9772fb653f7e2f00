"""Which entries a person means who wants them warmed again."""

from __future__ import annotations

from collections.abc import Collection

from warmd.errors import WarmdError
from warmd.nearest import nearest_of
from warmd.prompts.document import Document, Entry


class UnknownEntryError(WarmdError):
    """No entry has this name."""

    def __init__(self, name: str, known: Collection[str]) -> None:
        nearest = nearest_of(name, known)
        several = "`warmd status` names those there are" if known else "there are no entries"
        hint = f"the nearest is {nearest!r}" if nearest is not None else several
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
