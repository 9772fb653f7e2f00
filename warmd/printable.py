"""Text of others on a terminal: no escape sequence may reach it."""

from __future__ import annotations


def printable(text: str) -> str:
    """Text in which whatever a terminal would not show as it is, is written as Python writes it: `\\x1b`."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
