"""How deep a property list is nested: ours is hardly, but anybody may have written the file."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

DEEPEST = 32
WIDEST = 1 << 20
"""Values on one level: a binary property list may name one list many times."""


def is_shallow(value: Any) -> bool:
    """False for what functions that call themselves cannot go through, or not in a lifetime."""
    level = [value]
    for _ in range(DEEPEST):
        inner = (item for outer in level for item in _inside(outer))
        level = list(islice(inner, WIDEST))
        if not level or len(level) == WIDEST:
            break
    return not level


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
