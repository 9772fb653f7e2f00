"""Another day is noticed, however it came, and nothing is looked at while nothing depends on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import anyio
import pytest

from tests.patience import PATIENCE
from warmd.clock import DayWatch
from warmd.clock.fake import FakeClock

TODAY = date(2026, 11, 30)
NAP = 0.01


class Watched:
    """A watch on a fake clock, which counts how often it looks and what it notices."""

    def __init__(self, start: datetime) -> None:
        self.clock = FakeClock(start)
        self.looks = 0
        self.noticed = 0
        self._looked = anyio.Event()
        self.watch = DayWatch(self._look, NAP, self._notice)

    def _look(self) -> datetime:
        self.looks += 1
        self._looked.set()
        return self.clock()

    def _notice(self) -> None:
        self.noticed += 1
        # As the daemon does: everything is rendered anew.
        self.watch.follow([self.clock().date()])

    async def until_looked(self, times: int = 3) -> None:
        goal = self.looks + times
        with anyio.fail_after(PATIENCE):
            while self.looks < goal:
                self._looked = anyio.Event()
                await self._looked.wait()


@asynccontextmanager
async def watching(start: datetime) -> AsyncIterator[Watched]:
    found = Watched(start)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(found.watch.run)
        yield found
        tasks.cancel_scope.cancel()


async def test_nothing_is_looked_at_while_nothing_depends_on_the_day() -> None:
    async with watching(datetime(2026, 11, 30, 12)) as it:
        await anyio.sleep(10 * NAP)
        assert it.looks == 0
        it.watch.follow([TODAY])
        await it.until_looked()
        it.watch.follow([])
        await anyio.wait_all_tasks_blocked()
        looks = it.looks
        await anyio.sleep(10 * NAP)
        assert it.looks == looks


async def test_the_end_of_a_day_is_noticed_once() -> None:
    async with watching(datetime(2026, 11, 30, 23, 59, 59)) as it:
        it.watch.follow([TODAY])
        await it.until_looked()
        assert it.noticed == 0
        it.clock.advance(timedelta(seconds=2))
        await it.until_looked()
        assert it.noticed == 1


@pytest.mark.parametrize(
    ("step", "is_another_day"),
    [
        (timedelta(hours=5), False),
        (timedelta(hours=-5), False),
        (timedelta(hours=-13), True),
        (timedelta(days=40), True),
    ],
)
async def test_a_clock_that_was_set_counts_where_the_date_is_another(
    step: timedelta, is_another_day: bool
) -> None:
    async with watching(datetime(2026, 11, 30, 12)) as it:
        it.watch.follow([TODAY])
        await it.until_looked()
        it.clock.advance(step)
        await it.until_looked()
        assert it.noticed == is_another_day


async def test_another_time_zone_counts_where_the_date_is_another() -> None:
    async with watching(datetime(2026, 11, 30, 20, tzinfo=UTC)) as it:
        it.watch.follow([TODAY])
        it.clock.move_to(ZoneInfo("America/New_York"))
        await it.until_looked()
        assert it.noticed == 0
        it.clock.move_to(ZoneInfo("Asia/Tokyo"))
        await it.until_looked()
        assert it.noticed == 1


@pytest.mark.parametrize(
    ("zone", "before", "day"),
    [
        # The hour after midnight does not exist: clocks go from 23:59:59 to 01:00.
        ("Africa/Cairo", datetime(2026, 4, 23, 23, 59, 59), date(2026, 4, 24)),
        # The last hour of the day comes twice.
        ("Africa/Cairo", datetime(2026, 10, 29, 23, 59, 59), None),
        ("Europe/Berlin", datetime(2026, 10, 25, 2, 59, 59), None),
    ],
)
async def test_clocks_that_change_for_summer(zone: str, before: datetime, day: date | None) -> None:
    async with watching(before.replace(tzinfo=ZoneInfo(zone))) as it:
        it.watch.follow([before.date()])
        await it.until_looked()
        it.clock.advance(timedelta(seconds=2))
        await it.until_looked()
        assert it.clock().date() == (day or before.date())
        assert it.noticed == (day is not None)


async def test_renders_of_two_days_are_noticed() -> None:
    async with watching(datetime(2026, 12, 1)) as it:
        it.watch.follow([TODAY, date(2026, 12, 1)])
        await it.until_looked()
        assert it.noticed == 1


async def test_midnight_is_not_slept_through_by_a_long_nap() -> None:
    start = datetime.combine(TODAY, datetime.max.time()) - timedelta(seconds=0.05)
    begun = anyio.current_time()
    noticed = anyio.Event()
    watch = DayWatch(lambda: start + timedelta(seconds=anyio.current_time() - begun), 3600, noticed.set)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch.run)
        watch.follow([TODAY])
        with anyio.fail_after(PATIENCE):
            await noticed.wait()
        tasks.cancel_scope.cancel()
