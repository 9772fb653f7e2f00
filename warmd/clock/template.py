"""The clock as chat templates see it: it can be held still, and it notes what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from warmd.clock.moments import Clock


@dataclass(slots=True)
class Reading:
    """A moment at which the clock is held.

    Attributes:
        formats: What the template has asked for meanwhile, in order.
    """

    moment: datetime
    formats: dict[str, None] = field(default_factory=dict)


class TemplateClock:
    """Answers the templates of one renderer.

    Held still for one thread it goes on for the others: while one cuts a prefix, another may render a
    request.

    Args:
        now: The time to begin with when a prefix is searched.

    Attributes:
        is_connected: True when the templates do ask this clock; then silence means that they print no time.
    """

    def __init__(self, now: Clock = datetime.now) -> None:
        self.now = now
        self.is_connected = False
        self._held = threading.local()

    @contextmanager
    def held(self, moment: datetime) -> Iterator[Reading]:
        """Hold the clock at a moment, for this thread."""
        before = self._reading
        self._held.reading = reading = Reading(moment)
        try:
            yield reading
        finally:
            self._held.reading = before
            if before is not None:
                # A template may ask for more at one time than at another.
                before.formats |= reading.formats

    def answer(self, template_format: str, ask: Callable[[str], str]) -> str:
        """What a template is told; `ask` is what it would have asked without us."""
        reading = self._reading
        if reading is None:
            return ask(template_format)
        reading.formats[template_format] = None
        return reading.moment.strftime(template_format)

    @property
    def _reading(self) -> Reading | None:
        reading: Reading | None = getattr(self._held, "reading", None)
        return reading
