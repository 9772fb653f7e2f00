"""Which lines of the log somebody wants to see, and how."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from warmd.control.protocol import one_line
from warmd.events import Level
from warmd.logs import LEVELS, pretty_line


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


def make_view(wish: Wish, *, as_json: bool, is_terminal: bool) -> Callable[[bytes], str | None]:
    """Turns a line of the file into what is printed; None for a line that is not wanted."""
    render = pretty_line(is_terminal=is_terminal)

    def view(line: bytes) -> str | None:
        text = line.decode("utf-8", "replace")
        event = _parse(text)
        if event is None:
            # No line of ours: a torn one, or somebody else's. It is no JSON, and about no entry.
            return None if as_json or wish.entry is not None or not text.strip() else one_line(text)
        if not wish.takes(event):
            return None
        return text if as_json else render({**event, "ts": _local(event["ts"])})

    return view


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
