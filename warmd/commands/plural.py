"""Counts for people."""

from __future__ import annotations


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun: `1 file`, `2 files`; `many` where that is not the noun with an s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
