"""Warmings that stand still, are slow or take too long."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

import anyio
import pytest

from tests.test_daemon import entry, running
from tests.test_testing import make_entry
from warmd.engines.base import Effort, Prefix
from warmd.events import Event
from warmd.ledger import Slot
from warmd.settings import WarmSettings
from warmd.tell import Teller
from warmd.testing import FakeEngine
from warmd.vigil import TookTooLongError, Vigil

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


def looked_at(*looks: tuple[float, Effort | None]) -> list[str]:
    """The events of a warming of which this is known at these seconds."""
    events: list[Event] = []
    engine, now = FakeEngine(), [0.0]
    slot = Slot(make_entry("a"), Prefix((1, 2)), ("a",))
    vigil = Vigil(slot, engine, Teller(events.append), WarmSettings(max_pause=60.0), clock=lambda: now[0])
    for seconds, effort in looks:
        now[0] = seconds
        engine.work(effort)
        vigil.look()
    return [event.name for event in events]


def test_a_standstill_is_told_of_once_when_it_has_lasted_for_long() -> None:
    assert looked_at((5, BUSY), (64, BUSY)) == []
    assert looked_at((5, BUSY), (65, BUSY)) == ["entry.deferred"]
    assert looked_at((5, BUSY), (65, BUSY), (70, BUSY), (1000, BUSY)) == ["entry.deferred"]


@pytest.mark.parametrize("effort", [IDLE, None], ids=["no requests", "not told"])
def test_what_is_not_known_to_be_for_live_requests_is_not_said_to_be(effort: Effort | None) -> None:
    assert looked_at((5, effort), (65, effort), (1000, effort)) == []


async def test_a_warming_that_was_cancelled_waits_for_nothing(path: Path) -> None:
    engine = FakeEngine()
    engine.work(BUSY)
    engine.hold("a")
    async with running(path, entry("a"), engine=engine, warm=IMPATIENT) as it:
        await it.until(lambda: bool(it.named("entry.deferred")))
        it.daemon.pause()
        await it.until(lambda: it.status("a").state == "pending")
        assert it.status("a").reason is None


class Watching:
    """Warmings in an engine that serves requests; between two looks there is always a long time."""

    def __init__(self, settings: WarmSettings) -> None:
        self.told: list[str] = []
        """Entries that are said to wait."""
        self.is_told = anyio.Event()
        self._seconds = itertools.count(0, 1000)
        self._settings = settings
        self._engine = FakeEngine()
        self._engine.work(BUSY)

    def vigil(self, name: str) -> Vigil:
        slot = Slot(make_entry(name), Prefix((1, 2)), (name,))
        return Vigil(slot, self._engine, Teller(self._emit), self._settings, clock=self._clock)

    def _clock(self) -> float:
        return next(self._seconds)

    def _emit(self, event: Event) -> None:
        assert event.name == "entry.deferred"
        self.told.append(event.fields["entry"])
        self.is_told.set()


@pytest.mark.parametrize("by", ["a person", "its time"])
async def test_nothing_is_said_of_a_warming_that_is_being_stopped(by: str) -> None:
    """It may take a while, as what was noted of it on disk is taken back."""
    # The first look comes after that.
    timeout = 0.05 if by == "its time" else 60.0
    it, other = Watching(WarmSettings(max_pause=0.4, timeout=timeout)), Watching(WarmSettings(max_pause=0.4))
    async with anyio.create_task_group() as tasks:
        scope = anyio.CancelScope()
        with contextlib.suppress(TookTooLongError), scope, it.vigil("stopped").over(tasks, scope):
            try:
                if by == "a person":
                    scope.cancel()
                await anyio.sleep_forever()
            finally:
                # This one is begun later, and looked at just as often.
                with anyio.CancelScope(shield=True) as rest, other.vigil("other").over(tasks, rest):
                    await other.is_told.wait()
    assert it.told == []


async def test_what_has_just_become_warm_is_not_said_to_wait() -> None:
    it = Watching(IMPATIENT)
    async with anyio.create_task_group() as tasks:
        vigil = it.vigil("a")
        with vigil.over(tasks, anyio.CancelScope()):
            vigil.look()
    assert it.told == []


async def test_entries_that_share_a_prefix_are_each_told_of(path: Path) -> None:
    engine = FakeEngine()
    engine.work(BUSY)
    for name in "ab":
        engine.hold(name)
    async with running(path, entry("a", "same"), entry("b", "same"), engine=engine, warm=IMPATIENT) as it:
        await it.until(lambda: len(it.named("entry.deferred")) == 2)
        assert [event["entry"] for event in it.named("entry.deferred")] == ["a", "b"]
        assert it.status("b").reason == WAITS


# --- how fast -------------------------------------------------------------------------------------


def slow_events(
    looks: list[tuple[int, float]],
    *,
    best: float | None = 100.0,
    done: int = 0,
    names: tuple[str, ...] = ("a",),
) -> list[Event]:
    """What is told when a warming of these tokens and seconds, so far and in all, is looked at."""
    events: list[Event] = []
    engine = FakeEngine()
    engine.work(Effort(1000, 50.0))
    slot = Slot(make_entry("a"), Prefix(tuple(range(4000))), names, done_tokens=done)
    vigil = Vigil(slot, engine, Teller(events.append), WarmSettings(), lambda: best)
    for tokens, seconds in looks:
        engine.work(Effort(1000 + tokens, 50.0 + seconds, is_serving=True))
        vigil.look()
    return events


def test_a_warming_ten_times_slower_than_the_best_is_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XPC_SERVICE_NAME", "dev.warmd")
    events = slow_events([(0, 0.0), (32, 30.0), (90, 40.0), (132, 50.0), (200, 60.0)], names=("a", "b"))
    reason = (
        "slow_prefill: computing goes 20 times slower than this model's best on this machine; "
        "launchd runs this process: see `warmd doctor`"
    )
    expected = {"tokens_per_s": 5.0, "best_tokens_per_s": 100.0, "under_launchd": True, "reason": reason}
    assert [event.name for event in events] == ["entry.slow", "entry.slow"]
    assert [event.fields for event in events] == [{"entry": name, **expected} for name in "ab"]
    monkeypatch.setenv("XPC_SERVICE_NAME", "0")
    (event,) = slow_events([(32, 30.0), (132, 50.0)])
    assert event.fields["under_launchd"] is False
    assert event.fields["reason"].endswith("this machine; not under launchd")


@pytest.mark.parametrize(
    ("looks", "best", "done"),
    [
        ([(32, 0.3), (132, 9.0)], 1000.0, 0),
        ([(32, 0.3), (132, 10.3)], 100.0, 0),
        ([(32, 0.3), (90, 60.0)], 100.0, 0),
        ([(32, 0.3), (132, 60.0)], None, 0),
        ([(32, 0.3), (132, 60.0)], 100.0, 300),
        ([(132, 600.0)], 100.0, 0),
        ([(0, 0.0), (0, 0.0)], 100.0, 0),
    ],
    ids=[
        "not long",
        "just ten times",
        "few tokens",
        "no best",
        "after an edit",
        "first chunk",
        "nothing",
    ],
)
def test_what_does_not_tell_that_it_is_slow_is_not_told(
    looks: list[tuple[int, float]], best: float | None, done: int
) -> None:
    assert slow_events(looks, best=best, done=done) == []


class Watched(FakeEngine):
    """Counts how often it is looked at."""

    looks = 0

    def effort(self) -> Effort | None:
        self.looks += 1
        return super().effort()


async def test_a_slow_warming_is_told_of_while_it_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XPC_SERVICE_NAME", raising=False)
    engine = Watched("m")
    gate = engine.hold("a")
    async with running(path, entry("a"), engine=engine, warm=IMPATIENT, best_rate={"m": 50.0}.get) as it:
        await it.until(lambda: engine.running == 1)
        engine.work(Effort(10, 1.0))
        looks = engine.looks
        await it.until(lambda: engine.looks > looks)
        engine.work(Effort(110, 101.0))
        await it.until(lambda: bool(it.named("entry.slow")))
        assert [event["tokens_per_s"] for event in it.named("entry.slow")] == [1.0]
        gate.set()
        await it.applied(1)
        assert it.states() == {"a": "warm"}


# --- how long -------------------------------------------------------------------------------------


async def test_a_warming_that_takes_too_long_is_stopped_and_tried_again(path: Path) -> None:
    engine = FakeEngine(chunk_tokens=16)
    gate = engine.hold("a")
    async with running(path, entry("a"), entry("b"), engine=engine, warm=WarmSettings(timeout=0.2)) as it:
        await it.until(lambda: bool(it.named("entry.failed")))
        assert engine.running == 0
        size = it.status("a").tokens
        reason = (
            f"warming failed: it took more than 0.2 s ([warm] timeout), and had come to 16 of {size} tokens"
        )
        assert it.named("entry.failed") == [
            {"entry": "a", "state": "failed", "reason": reason, "retry_in_s": 1.0}
        ]
        assert (it.status("a").state, it.status("a").reason) == ("failed", reason)
        await it.until(lambda: it.states()["b"] == "warm")
        gate.set()
        await it.until(lambda: it.states() == {"a": "warm", "b": "warm"})
        assert it.status("a").reason is None


async def test_each_time_that_it_takes_too_long_the_next_try_is_later(path: Path) -> None:
    engine = FakeEngine()
    engine.hold("a")
    async with running(path, entry("a"), engine=engine, warm=WarmSettings(timeout=0.1)) as it:
        await it.until(lambda: len(it.named("entry.failed")) == 3)
        assert [event["retry_in_s"] for event in it.named("entry.failed")] == [1.0, 2.0, 4.0]


def test_of_a_prefix_of_unknown_length_only_the_time_is_told() -> None:
    assert str(TookTooLongError(3600.0, 0, None)) == "it took more than 3600 s ([warm] timeout)"
