"""Notices that another day has begun, for what was rendered with a date in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date

import anyio

from warmd.clock.moments import Clock, until_midnight
from warmd.trigger import Signal

GRACE = 0.05
"""Seconds after midnight: no earlier than the first request of the day could see the new date."""


class DayWatch:
    """Looks at the local date while anything depends on it, and not at all otherwise.

    The date is all that is compared. So the end of a day, a clock that was set, another time zone and a
    night that the machine slept through are one thing.

    Args:
        clock: The local time.
        longest_nap: Seconds between two looks at most. Timers stand still while a machine sleeps, and no
            event tells that a clock was set.
        on_change: Called when what is followed is of another day.
    """

    def __init__(self, clock: Clock, longest_nap: float, on_change: Callable[[], None]) -> None:
        self._clock = clock
        self._longest_nap = longest_nap
        self._on_change = on_change
        self._days: frozenset[date] = frozenset()
        self._news = Signal()

    def follow(self, days: Iterable[date]) -> None:
        """Look out for the end of these days; none: there is nothing to look out for."""
        if (found := frozenset(days)) != self._days:
            self._days = found
            self._news.set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            if not self._days:
                await self._news.wait()
                continue
            now = self._clock()
            if self._days != {now.date()}:
                self._on_change()
            with anyio.move_on_after(min(self._longest_nap, until_midnight(now) + GRACE)):
                await self._news.wait()
