"""The two texts around their first difference, made fit to be seen."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field

from warmd.radix import common_length

WIDTH = 60
"""Characters that are shown on each side of the difference."""

_PICTURES = 0x2400
"""The pictures of the control characters begin here, in the order of the characters."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Two texts around their first difference.

    Attributes:
        before: The end of what both begin with.
        entry: How the entry's text goes on.
        request: How the request's text goes on.
        offset: Characters that both begin with.
    """

    before: str = field(repr=False)
    entry: str = field(repr=False)
    request: str = field(repr=False)
    offset: int


def make_excerpt(entry: str, request: str) -> Excerpt:
    """Cut two texts around their first difference."""
    at = common_length(entry, request)
    # A combining mark belongs to the letter before it: the letter is shown on both sides, too.
    while at and any(unicodedata.combining(text[at : at + 1] or " ") for text in (entry, request)):
        at -= 1
    return Excerpt(entry[max(0, at - WIDTH) : at], entry[at : at + WIDTH], request[at : at + WIDTH], at)


def visible(text: str) -> str:
    """A text with every character that a terminal would obey or hide made visible."""
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(_PICTURES + code)
    if code == 0x7F:
        return "\u2421"
    # What stands for nothing by itself, turns the direction of a line, or looks like a space but is none.
    if character != " " and unicodedata.category(character) in (
        "Cc",
        "Cf",
        "Cs",
        "Co",
        "Cn",
        "Zl",
        "Zp",
        "Zs",
    ):
        return f"<U+{code:04X}>"
    return character
