"""Lines and columns of a text."""

from __future__ import annotations

from itertools import accumulate

_BLOCK = 1 << 16


class Lines:
    """Turns offsets into lines and columns, both from 1, columns in characters."""

    def __init__(self, text: str) -> None:
        self._text = text
        # One number a block instead of one a line: a file may consist of line breaks.
        blocks = range(0, len(text), _BLOCK)
        counts = (text.count("\n", start, start + _BLOCK) for start in blocks)
        self._before = list(accumulate(counts, initial=0))

    def position(self, offset: int) -> tuple[int, int]:
        """The line and column of an offset."""
        block = offset // _BLOCK
        line = self._before[block] + self._text.count("\n", block * _BLOCK, offset)
        return line + 1, offset - self._text.rfind("\n", 0, offset)
