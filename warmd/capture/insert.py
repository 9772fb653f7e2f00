"""Puts an entry into the text of a prompts file and leaves everything else as it is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from warmd.capture.layout import Layout, layout_of, line_indent, space_before, write_line
from warmd.prompts.jsontext import Path, locate, parse
from warmd.prompts.validate import entries_of


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a text: what stands from `start` to `end` becomes `text`."""

    start: int
    end: int
    text: str

    def apply(self, text: str) -> str:
        """The changed text."""
        return text[: self.start] + self.text + text[self.end :]


def add_entry(text: str, entry: dict[str, Any]) -> Edit:
    """Add an entry behind the last one.

    Args:
        text: Of a valid file, without byte order mark.
        entry: As the file says it.
    """
    entries, path = entries_of(parse(text).value)
    start = _start(text, path)
    if not entries:
        return _add_first(text, start, entry)
    last = _start(text, (*path, len(entries) - 1))
    end = _end(text, last)
    gap = space_before(text, last)
    if not gap and len(entries) == 1:
        # The only item stands right behind the bracket, as no item does behind a comma.
        gap = " "
    return Edit(end, end, "," + gap + _write(text, last, end, entry))


def replace_entry(text: str, index: int, entry: dict[str, Any]) -> Edit:
    """Replace the entry at an index; see `add_entry`."""
    _, path = entries_of(parse(text).value)
    start = _start(text, (*path, index))
    end = _end(text, start)
    return Edit(start, end, _write(text, start, end, entry))


def _add_first(text: str, start: int, entry: dict[str, Any]) -> Edit:
    layout, base = layout_of(text), line_indent(text, start)
    inside = text[start + 1 : _end(text, start) - 1]
    deeper = base + layout.indent
    closing = "" if "\n" in inside else layout.newline + base
    return Edit(start + 1, start + 1, layout.newline + deeper + layout.write(entry, deeper) + closing)


def _write(text: str, start: int, end: int, entry: dict[str, Any]) -> str:
    """An entry in the manner of the one from `start` to `end`."""
    if "\n" not in text[start:end]:
        return write_line(entry)
    layout: Layout = layout_of(text)
    return layout.write(entry, line_indent(text, start))


def _start(text: str, path: Path) -> int:
    return locate(text, [path])[path][0]


def _end(text: str, start: int) -> int:
    return json.JSONDecoder().raw_decode(text, start)[1]
