"""What is the same but for the order of its keys: it could share its state and does not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from warmd.prompts.document import Entry


class Place(NamedTuple):
    """A tool of an entry."""

    entry: int
    tool: int


def equal_entries(entries: Sequence[Entry]) -> dict[int, int]:
    """Entries that differ from an earlier one in the order of keys only: its index by theirs."""
    found: dict[int, int] = {}
    first: dict[str, Entry] = {}
    for entry in entries:
        other = first.setdefault(_canonical(_content(entry)), entry)
        if _exact(_content(other)) != _exact(_content(entry)):
            found[entry.index] = other.index
    return found


def equal_tools(entries: Iterable[Entry]) -> Iterator[tuple[Place, Place]]:
    """Tools that differ from an earlier one in the order of keys only, each with that; each order once."""
    first: dict[str, tuple[Place, Any]] = {}
    told: set[str] = set()
    for entry in entries:
        for index, tool in enumerate(entry.tools or ()):
            place, exact = Place(entry.index, index), _exact(tool)
            other, known = first.setdefault(_canonical(tool), (place, tool))
            if exact not in told and exact != _exact(known):
                yield place, other
            told.add(exact)


def _content(entry: Entry) -> list[Any]:
    # The order of template arguments reaches no template.
    kwargs = dict(sorted(entry.chat_template_kwargs.items()))
    return [list(entry.messages), list(entry.tools or ()), kwargs]


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _exact(value: Any) -> str:
    return json.dumps(value)
