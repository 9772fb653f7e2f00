"""Texts for people."""

from __future__ import annotations


def printable(text: str) -> str:
    """Text in which whatever a terminal would not show as it is, is written as Python writes it: `\\x1b`.

    No escape sequence of others may reach a terminal.
    """
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def one_line(text: str) -> str:
    """Text as one line that a terminal shows as it is."""
    return "".join(character if character.isprintable() else " " for character in text).strip()


def http_url(host: str, port: int) -> str:
    """Where a server is that listens on an address; an IPv6 one goes into brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun: `1 file`, `2 files`; `many` where that is not the noun with an s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
