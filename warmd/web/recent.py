"""The last events, as names and numbers, for who looks in from outside."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from warmd.events import Emit, Event, Level

KEPT = 100
NAMES = ("entry", "state", "source")
"""Fields whose text is kept. Of all others only numbers are; of lists, how long they are."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event that happened.

    Attributes:
        id: Counts the events of this process from 1.
        at: When, in seconds since the epoch.
        event: Its name in the catalogue.
        level: As logged.
        fields: Names and numbers.
    """

    id: int
    at: float
    event: str
    level: Level
    fields: Mapping[str, Any]


class Recent:
    """Keeps the last events. Call it with each; not safe to use from several threads at once.

    Args:
        then: Receives every event as it is.
    """

    def __init__(self, then: Emit = lambda event: None) -> None:
        self._then = then
        self._events: deque[Recorded] = deque(maxlen=KEPT)
        self._count = 0

    def __call__(self, event: Event) -> None:
        """Keep one, and pass it on."""
        self._count += 1
        fields = {name: _number(name, value) for name, value in event.fields.items()}
        known = {name: value for name, value in fields.items() if value is not None}
        self._events.append(Recorded(self._count, time.time(), event.name, event.level, known))
        self._then(event)

    def events(self) -> tuple[Recorded, ...]:
        """All that are kept, the oldest first."""
        return tuple(self._events)


def _number(name: str, value: Any) -> Any:
    if isinstance(value, (int, float)) or (name in NAMES and isinstance(value, str)):
        return value
    return len(value) if isinstance(value, (list, tuple)) else None
