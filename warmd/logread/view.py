"""Which lines of the log somebody wants to see, and how."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from warmd.events import Level
from warmd.logs import LEVELS, pretty_line
from warmd.text import one_line


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants to see.

    Attributes:
        entry: Only lines about this entry; None for all.
        level: The lowest level.
    """

    entry: str | None = None
    level: Level = "debug"

    def takes(self, event: dict[str, Any]) -> bool:
        """True for an event that is to be shown."""
        if self.entry is not None and event.get("entry") != self.entry:
            return False
        level = event.get("level")
        return level not in LEVELS or LEVELS.index(level) >= LEVELS.index(self.level)


@dataclass(slots=True)
class View:
    """Turns lines of the file into what is printed.

    Attributes:
        wish: Which.
        as_json: As they are.
        render: Writes an event for people.
        entries: The names of all entries that a line was about, wanted or not.
    """

    wish: Wish
    as_json: bool
    render: Callable[[MutableMapping[str, Any]], str]
    entries: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, wish: Wish, *, as_json: bool, is_terminal: bool) -> View:
        """In colour for a terminal."""
        return cls(wish, as_json, pretty_line(is_terminal=is_terminal))

    def shown(self, lines: Iterable[bytes]) -> Iterator[str]:
        """What is printed of some lines."""
        return (text for line in lines if (text := self._text(line)) is not None)

    def _text(self, line: bytes) -> str | None:
        text = line.decode("utf-8", "replace")
        event = _parse(text)
        if event is None:
            # No line of ours: a torn one, or somebody else's. It is no JSON, and about no entry.
            is_wanted = not self.as_json and self.wish.entry is None and text.strip()
            return one_line(text) if is_wanted else None
        if isinstance(event.get("entry"), str):
            self.entries.add(event["entry"])
        if not self.wish.takes(event):
            return None
        return text if self.as_json else self.render({**event, "ts": _local(event["ts"])})


def _parse(text: str) -> dict[str, Any] | None:
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_event = isinstance(event, dict) and all(
        isinstance(event.get(key), str) for key in ("ts", "event", "level")
    )
    return event if is_event else None


def _local(stamp: str) -> str:
    """A time of the log, which is UTC, by this machine's clock."""
    try:
        return datetime.fromisoformat(stamp).astimezone().strftime("%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return one_line(stamp)
