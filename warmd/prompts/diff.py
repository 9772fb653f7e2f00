"""What changed between two documents, counted for people."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from warmd.prompts.document import Document, Entry


@dataclass(frozen=True, slots=True)
class Changes:
    """Entries by what happened to them."""

    added: int
    edited: int
    removed: int
    unchanged: int


def diff(old: Document | None, new: Document) -> Changes:
    """Compare two documents.

    Named entries are matched by name. Unnamed ones are matched by content wherever they stand; of those left
    over, as many as possible count as edited.
    """
    before, after = old.entries if old else (), new.entries
    named, unnamed = _named(before, after), _unnamed(before, after)
    return Changes(
        added=named.added + unnamed.added,
        edited=named.edited + unnamed.edited,
        removed=named.removed + unnamed.removed,
        unchanged=named.unchanged + unnamed.unchanged,
    )


def _named(before: tuple[Entry, ...], after: tuple[Entry, ...]) -> Changes:
    old = {entry.name: entry.digest for entry in before if entry.is_named}
    new = {entry.name: entry.digest for entry in after if entry.is_named}
    both = old.keys() & new.keys()
    unchanged = sum(old[name] == new[name] for name in both)
    return Changes(len(new.keys() - both), len(both) - unchanged, len(old.keys() - both), unchanged)


def _unnamed(before: tuple[Entry, ...], after: tuple[Entry, ...]) -> Changes:
    old = Counter(entry.digest for entry in before if not entry.is_named)
    new = Counter(entry.digest for entry in after if not entry.is_named)
    unchanged = (old & new).total()
    gone, come = old.total() - unchanged, new.total() - unchanged
    edited = min(gone, come)
    return Changes(come - edited, edited, gone - edited, unchanged)
