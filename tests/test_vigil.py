"""Warmings that stand still."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.test_daemon import entry, running
from warmd.engines.base import Effort
from warmd.settings import WarmSettings
from warmd.testing import FakeEngine

pytestmark = pytest.mark.anyio

BUSY, IDLE = Effort(is_serving=True), Effort()
IMPATIENT = WarmSettings(max_pause=0.1)
WAITS = "live requests have left no time for it for 0.1 s or more; it goes on when they do"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "prompts.json"


async def test_a_warming_that_requests_leave_no_time_for_is_told_of_once_and_goes_on(path: Path) -> None:
    engine = FakeEngine()
    engine.work(BUSY)
    gate = engine.hold("a")
    async with running(path, entry("a"), engine=engine, warm=IMPATIENT) as it:
        await it.until(lambda: bool(it.named("entry.deferred")))
        assert (it.status("a").state, it.status("a").reason) == ("warming", WAITS)
        await anyio.sleep(0.3)
        assert it.named("entry.deferred") == [{"entry": "a", "needed": 0, "available": 0, "reason": WAITS}]
        gate.set()
        await it.applied(1)
        assert (it.status("a").state, it.status("a").reason) == ("warm", None)
        assert engine.names_of("warm") == ["a"]
        assert it.named("plan.made")[0]["warm"] == len(it.named("plan.made")) == 1


async def test_each_time_that_it_stands_still_is_told(path: Path) -> None:
    engine = FakeEngine()
    engine.work(BUSY)
    engine.hold("a")
    async with running(path, entry("a"), engine=engine, warm=IMPATIENT) as it:
        await it.until(lambda: len(it.named("entry.deferred")) == 1)
        # What the engine does for another one is no standstill.
        engine.work(Effort(8, 1.0, is_serving=True))
        await it.until(lambda: it.status("a").reason is None)
        await it.until(lambda: len(it.named("entry.deferred")) == 2)
        assert it.status("a").reason == WAITS


@pytest.mark.parametrize("effort", [IDLE, None], ids=["no requests", "not told"])
async def test_what_is_not_known_to_be_for_live_requests_is_not_said_to_be(
    path: Path, effort: Effort | None
) -> None:
    engine = FakeEngine()
    engine.work(effort)
    gate = engine.hold("a")
    async with running(path, entry("a"), engine=engine, warm=IMPATIENT) as it:
        await it.until(lambda: it.states() == {"a": "warming"})
        await anyio.sleep(0.3)
        assert (it.status("a").reason, it.named("entry.deferred")) == (None, [])
        gate.set()
        await it.applied(1)


async def test_a_warming_that_was_cancelled_waits_for_nothing(path: Path) -> None:
    engine = FakeEngine()
    engine.work(BUSY)
    engine.hold("a")
    async with running(path, entry("a"), engine=engine, warm=IMPATIENT) as it:
        await it.until(lambda: bool(it.named("entry.deferred")))
        it.daemon.pause()
        await it.until(lambda: it.status("a").state == "pending")
        assert it.status("a").reason is None


async def test_entries_that_share_a_prefix_are_each_told_of(path: Path) -> None:
    engine = FakeEngine()
    engine.work(BUSY)
    for name in "ab":
        engine.hold(name)
    async with running(path, entry("a", "same"), entry("b", "same"), engine=engine, warm=IMPATIENT) as it:
        await it.until(lambda: len(it.named("entry.deferred")) == 2)
        assert [event["entry"] for event in it.named("entry.deferred")] == ["a", "b"]
        assert it.status("b").reason == WAITS
