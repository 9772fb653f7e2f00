"""Moments at which a prompt that prints the time would look different. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Literal

Clock = Callable[[], datetime]
"""The local time without a zone, as `datetime.now()` gives it: that is what templates print."""

Unit = Literal["second", "minute", "hour"]

# The six other days of the week, then other months and another year.
_DAYS = (1, 2, 3, 4, 5, 6, 31, 62, 183, 366)


def same_day(now: datetime) -> Iterator[tuple[Unit, datetime]]:
    """Other moments of the same day, each with the smallest unit in which it differs."""
    micro = (now.microsecond + 123_457) % 1_000_000
    for step in (1, 30):
        yield "second", now.replace(second=(now.second + step) % 60, microsecond=micro)
    for step in (1, 30):
        yield "minute", now.replace(minute=(now.minute + step) % 60)
    # All of them: a template may say good evening from some hour on.
    for step in range(1, 24):
        yield "hour", now.replace(hour=(now.hour + step) % 24)


def other_days(now: datetime) -> Iterator[datetime]:
    """The same time on other days: of another number, week day, month and year."""
    for days in _DAYS:
        # The calendar ends.
        if now <= datetime.max - timedelta(days):
            yield now + timedelta(days)


def signature(moment: datetime, formats: Iterable[str]) -> tuple[str, ...]:
    """What a template that asks for these formats is told: equal ones give equal renders."""
    return tuple(moment.strftime(each) for each in formats)


def unit_of(formats: Collection[str], now: datetime) -> Unit | None:
    """The smallest unit of the day that these formats tell; None for dates, which last until midnight."""
    told = signature(now, formats)
    return next((unit for unit, moment in same_day(now) if signature(moment, formats) != told), None)


def is_daily(formats: Collection[str], now: datetime) -> bool:
    """True when these formats tell another day from this one."""
    told = signature(now, formats)
    return any(signature(moment, formats) != told for moment in other_days(now))


def until_midnight(now: datetime) -> float:
    """Seconds by the wall clock until the local day ends.

    Where clocks are put forward or back in between it is an hour more or less: look again when it is over.
    """
    return (datetime.combine(now.date(), datetime.max.time()) - now).total_seconds()
