"""A clock for tests: of this package, and of programs that build on it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo


class FakeClock:
    """Stands still until it is told to move. Callable as a `Clock`.

    Args:
        start: With a zone: that of the machine. Without one: UTC.

    Attributes:
        looks: How often it was asked.
    """

    def __init__(self, start: datetime) -> None:
        self.looks = 0
        self._zone: tzinfo = start.tzinfo or UTC
        self._instant = start.replace(tzinfo=self._zone).astimezone(UTC)

    def __call__(self) -> datetime:
        """The local time, without its zone."""
        self.looks += 1
        return self._instant.astimezone(self._zone).replace(tzinfo=None)

    def advance(self, time: timedelta) -> None:
        """Let time pass; a negative one sets the clock back."""
        self._instant += time

    def move_to(self, zone: tzinfo) -> None:
        """Take the machine to another time zone."""
        self._zone = zone
