"""How a prompts file is laid out, so that what is added looks like the rest."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

_SPACE = " \t\r\n"
_INDENT = re.compile(r"[ \t]*")
_WIDEST = 8
DEFAULT_INDENT = "  "


@dataclass(frozen=True, slots=True)
class Layout:
    """Line breaks and the width of one level."""

    newline: str
    indent: str

    def write(self, value: Any, base: str) -> str:
        """A value over several lines; `base` is the indent of the line that it begins on."""
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=self.indent)
        # Strings have no raw line breaks in JSON.
        return text.replace("\n", self.newline + base)


def layout_of(text: str) -> Layout:
    """What a JSON text uses."""
    first = text.find("\n")
    newline = "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"
    return Layout(newline, _indent_of(text))


def _indent_of(text: str) -> str:
    """By how much the first line that is indented deeper than the one before it is."""
    before = ""
    for line in text.splitlines():
        indent = line_indent(line, 0)
        if not line.strip():
            continue
        if len(indent) > len(before) and indent.startswith(before) and len(indent) - len(before) <= _WIDEST:
            return indent[len(before) :]
        before = indent
    return DEFAULT_INDENT


def write_line(value: Any) -> str:
    """A value on one line."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def line_indent(text: str, offset: int) -> str:
    """The white space that the line of an offset begins with."""
    start = max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1
    found = _INDENT.match(text, start)
    return found.group() if found else ""


def space_before(text: str, offset: int) -> str:
    """The white space right before an offset."""
    return text[len(text[:offset].rstrip(_SPACE)) : offset]
