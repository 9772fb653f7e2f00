"""What somebody may have meant who misspelled a name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

CUTOFF = 0.75
"""Two letters that changed places in a word of four: below it a guess would send people astray."""
LONGEST = 80


def nearest_of(name: str, known: Iterable[str]) -> str | None:
    """The known name that one is spelled nearly like, whatever the case; None when there is none."""
    by_lower = {item.lower(): item for item in reversed(list(known))}
    # A name can be as long as a file, and the comparison takes the product of the lengths.
    found = difflib.get_close_matches(name[:LONGEST].lower(), by_lower, n=1, cutoff=CUTOFF)
    return by_lower[found[0]] if found else None
