"""Entries whose template prints the time, on a scripted engine and a clock that stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import anyio
import pytest

from tests.test_daemon import Running, entry
from warmd.clock.fake import FakeClock
from warmd.daemon import Daemon
from warmd.ledger import DAILY_NOTE
from warmd.settings import Settings
from warmd.testing import FakeEngine

DATE = "%Y-%m-%d"
EVENING = datetime(2026, 11, 30, 23, 59, 58)
NAP = 0.05


class Dated(Running):
    """A daemon whose clock and whose engine's are one that the test moves."""

    def __init__(self, path: Path, start: datetime, nap: float, prove: float) -> None:
        self.clock = FakeClock(start)
        super().__init__(path, FakeEngine(clock=self.clock), concurrency=1)
        settings = Settings()
        watch = replace(settings.watch, settle=0.01, ceiling=0.1, rehash=nap)
        settings = replace(settings, watch=watch, warm=replace(settings.warm, prove=prove))
        self.daemon = Daemon(self.engine, path, settings, emit=self._emit, clock=self.clock)

    async def nothing_happens(self) -> None:
        """Several looks long."""
        seen = len(self.events)
        await anyio.sleep(6 * NAP)
        assert self.events[seen:] == []

    def held(self) -> list[str]:
        """The dates that held prefixes begin with."""
        return sorted(text[:10] for text in self.engine.texts())


@asynccontextmanager
async def dated(
    path: Path, start: datetime, *entries: Any, nap: float = NAP, prove: float = 3600, **formats: str
) -> AsyncIterator[Dated]:
    found = Dated(path, start, nap, prove)
    for name, time_format in formats.items():
        found.engine.print_time(name, time_format)
    found.save(*entries)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(found.daemon.run)
        await found.until(lambda: found.daemon.statistics().document.applied >= 1)
        yield found
        tasks.cancel_scope.cancel()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "prompts.json"


async def test_what_prints_the_date_is_warmed_anew_after_midnight_and_nothing_else(path: Path) -> None:
    async with dated(path, EVENING, entry("dated"), entry("plain"), dated=DATE) as it:
        await it.nothing_happens()
        assert it.status("dated").reason == DAILY_NOTE
        assert it.status("plain").reason is None
        it.clock.advance(timedelta(seconds=3))
        await it.until(lambda: len(it.named("entry.dropped")) == 1)
        assert it.engine.names_of("render") == ["dated", "plain", "dated"]
        assert it.engine.names_of("warm") == ["dated", "plain", "dated"]
        assert it.states() == {"dated": "warm", "plain": "warm"}
        assert "2026-12-01" in it.held()
        assert "2026-11-30" not in it.held()
        assert it.named("entry.lost") == []
        await it.nothing_happens()


async def test_yesterday_s_prefix_serves_until_today_s_is_warm(path: Path) -> None:
    async with dated(path, EVENING, entry("dated"), dated=DATE) as it:
        gate = it.engine.hold("dated")
        it.clock.advance(timedelta(seconds=3))
        await it.until(lambda: it.states() == {"dated": "warming"})
        assert it.held() == ["2026-11-30"]
        gate.set()
        await it.until(lambda: it.held() == ["2026-12-01"])


async def test_every_midnight_counts_also_when_several_were_slept_through(path: Path) -> None:
    async with dated(path, EVENING, entry("dated"), dated=DATE) as it:
        for days, date in ((1, "2026-12-01"), (3, "2026-12-04"), (1, "2026-12-05")):
            it.clock.advance(timedelta(days=days))
            await it.until(lambda date=date: it.held() == [date])  # type: ignore[misc]
        assert len(it.named("entry.warmed")) == 4


async def test_a_clock_that_is_set_back_brings_back_yesterday(path: Path) -> None:
    async with dated(path, datetime(2026, 12, 1, 0, 0, 5), entry("dated"), dated=DATE) as it:
        it.clock.advance(timedelta(seconds=-10))
        await it.until(lambda: it.held() == ["2026-11-30"])


async def test_another_time_zone_counts_where_its_date_is_another(path: Path) -> None:
    async with dated(path, datetime(2026, 11, 30, 20, tzinfo=UTC), entry("dated"), dated=DATE) as it:
        it.clock.move_to(ZoneInfo("Europe/Berlin"))
        await it.nothing_happens()
        it.clock.move_to(ZoneInfo("Asia/Tokyo"))
        await it.until(lambda: it.held() == ["2026-12-01"])


async def test_the_end_of_summer_time_at_midnight_repeats_an_hour_and_warms_nothing(path: Path) -> None:
    start = datetime(2026, 10, 29, 23, 59, 58, tzinfo=ZoneInfo("Africa/Cairo"))
    async with dated(path, start, entry("dated"), dated=DATE) as it:
        it.clock.advance(timedelta(seconds=3))
        assert it.clock().hour == 23
        await it.nothing_happens()
        it.clock.advance(timedelta(hours=1))
        await it.until(lambda: it.held() == ["2026-10-30"])


async def test_a_proof_that_comes_first_after_midnight_finds_nothing_lost(path: Path) -> None:
    start = EVENING - timedelta(hours=5)
    async with dated(path, start, entry("dated"), nap=60, prove=NAP, dated=DATE) as it:
        it.clock.advance(timedelta(hours=6))
        await it.until(lambda: it.held() == ["2026-12-01"])
        assert it.named("entry.lost") == []
        assert it.status("dated").state == "warm"


async def test_a_month_is_rendered_anew_each_day_and_warmed_anew_when_it_ends(path: Path) -> None:
    async with dated(path, datetime(2026, 11, 29, 12), entry("dated"), dated="%B") as it:
        it.clock.advance(timedelta(days=1))
        await it.until(lambda: it.engine.names_of("render") == ["dated"] * 2)
        await it.nothing_happens()
        it.clock.advance(timedelta(days=1))
        await it.until(lambda: it.engine.names_of("warm") == ["dated"] * 2)


async def test_what_prints_the_time_of_day_is_volatile_told_once_and_not_chased(path: Path) -> None:
    async with dated(path, EVENING, entry("timed"), entry("plain"), timed="%H:%M:%S") as it:
        assert it.states() == {"timed": "volatile", "plain": "warm"}
        assert it.named("entry.volatile") == [
            {"entry": "timed", "position": 0, "reason": "it prints the second"}
        ]
        assert it.named("entry.failed") == []
        it.clock.advance(timedelta(hours=30))
        await it.nothing_happens()
        it.save(entry("timed"), entry("plain"), entry("more"))
        await it.until(lambda: it.daemon.statistics().document.applied == 2)
        assert it.engine.names_of("render") == ["timed", "plain", "more"]
        assert len(it.named("entry.volatile")) == 1


async def test_the_clock_is_not_looked_at_while_no_entry_depends_on_it(path: Path) -> None:
    async with dated(path, EVENING, entry("dated"), entry("plain"), dated=DATE) as it:
        it.save(entry("plain"))
        await it.until(lambda: it.daemon.statistics().document.applied == 2)
        looks = it.clock.looks
        await anyio.sleep(6 * NAP)
        assert it.clock.looks == looks


async def test_a_model_that_goes_takes_its_days_along(path: Path) -> None:
    async with dated(path, EVENING, entry("dated"), dated=DATE) as it:
        it.engine.load(None)
        await it.until(lambda: it.daemon.statistics().model is None)
        it.clock.advance(timedelta(days=1))
        looks = it.clock.looks
        await anyio.sleep(6 * NAP)
        assert it.clock.looks == looks
        it.engine.load("other")
        await it.until(lambda: it.held() == ["2026-12-01"])
