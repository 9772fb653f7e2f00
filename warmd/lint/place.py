"""Places in JSON strings."""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.")


def offset_in_string(text: str, start: int, index: int) -> int:
    """Where a character of a string's value stands in the JSON text.

    Args:
        text: The JSON text.
        start: The offset of the string's opening quote.
        index: Of the character in the value.
    """
    offset = start + 1
    # A string without escapes stands there as it is; most of a long one is of that kind.
    while index > 0:
        plain = text.find("\\", offset, offset + index)
        if plain < 0:
            return offset + index
        index -= plain - offset
        match = _ESCAPE.match(text, plain)
        offset, index = (match.end() if match else plain + 1), index - 1
    return offset
