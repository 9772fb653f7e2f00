"""What is warm is proved again and again, and healed, but not without end."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.patience import eventually
from tests.test_daemon import QUICK, Running, entry
from warmd.daemon import Daemon
from warmd.engines.base import Prefix
from warmd.ledger import Slot
from warmd.prompts.document import Entry
from warmd.proof import Prover
from warmd.settings import MemorySettings, Settings, WarmSettings
from warmd.testing import FakeEngine


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "prompts.json"


class Proving(Running):
    """A daemon that proves often."""

    def __init__(
        self, path: Path, prove: float, rewarms_per_hour: int, engine: FakeEngine | None = None
    ) -> None:
        super().__init__(path, engine or FakeEngine(), 1)
        warm = WarmSettings(prove=prove, rewarms_per_hour=rewarms_per_hour)
        settings = Settings(watch=QUICK, warm=warm, memory=MemorySettings(look=0.05))
        self.daemon = Daemon(self.engine, path, settings, emit=self._emit, randomness=lambda: 0.5)


async def test_what_a_request_would_not_get_any_more_is_lost_and_warmed_again(path: Path) -> None:
    it = Proving(path, prove=0.1, rewarms_per_hour=100)
    it.save(entry("a"), entry("b"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(it.daemon.run)
        await it.applied(1)
        size = it.status("a").tokens
        it.engine.miss("a", 3)
        await it.until(lambda: len(it.named("entry.lost")) == 1)
        it.engine.miss("a", 10_000)
        assert it.named("entry.lost") == [
            {"entry": "a", "tokens": size, "cause": f"a request finds 3 of {size} tokens in the cache"}
        ]
        await it.until(lambda: set(it.states().values()) == {"warm"})
        assert it.engine.names_of("warm").count("b") == 1
        tasks.cancel_scope.cancel()


class Slow(FakeEngine):
    """An engine that is busy with requests when it is told to be."""

    def __init__(self) -> None:
        super().__init__()
        self.renders, self.looks = anyio.Event(), anyio.Event()
        self.renders.set()
        self.looks.set()

    async def render(self, entry: Entry) -> Prefix:
        await self.renders.wait()
        return await super().render(entry)

    async def look_up(self, entry: Entry, prefix: Prefix) -> int | None:
        found = await super().look_up(entry, prefix)
        await self.looks.wait()
        return found


async def test_what_is_lost_after_it_has_left_the_file_is_no_matter(path: Path) -> None:
    engine = Slow()
    it = Proving(path, prove=0.05, rewarms_per_hour=100, engine=engine)
    it.save(entry("a"), entry("b"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(it.daemon.run)
        await it.applied(1)
        engine.renders = anyio.Event()
        it.save(entry("c"), entry("b"))
        await it.until(lambda: len(it.named("prompts.accepted")) == 2)
        engine.miss("a", 3)
        engine.miss("b", 3)
        # What is still in the file is healed all the same.
        await it.until(lambda: [lost["entry"] for lost in it.named("entry.lost")] == ["b"])
        engine.miss("b", 10_000)
        engine.renders.set()
        await it.until(lambda: it.states() == {"c": "warm", "b": "warm"})
        assert len(it.named("entry.lost")) == 1
        tasks.cancel_scope.cancel()


async def test_a_proof_that_was_under_way_when_it_was_to_be_warmed_anew_tells_of_no_loss(path: Path) -> None:
    engine = Slow()
    it = Proving(path, prove=0.05, rewarms_per_hour=100, engine=engine)
    it.save(entry("a"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(it.daemon.run)
        await it.applied(1)
        engine.miss("a", 3)
        looks, engine.looks = engine.looks, anyio.Event()
        seen = len(engine.names_of("look_up"))
        await eventually(lambda: len(engine.names_of("look_up")) > seen)
        engine.miss("a", 10_000)
        gate = engine.hold("a")
        it.daemon.rewarm(["a"])
        await it.until(lambda: it.states() == {"a": "warming"})
        engine.looks.set()
        engine.looks = looks
        await anyio.sleep(0.05)
        gate.set()
        await it.until(lambda: it.states() == {"a": "warm"})
        assert it.named("entry.lost") == []
        assert engine.names_of("warm") == ["a", "a"]
        tasks.cancel_scope.cancel()


async def test_what_is_lost_again_and_again_waits_and_says_what_to_do(path: Path) -> None:
    it = Proving(path, prove=1000, rewarms_per_hour=3)
    it.save(entry("a"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(it.daemon.run)
        await it.applied(1)
        for lost in range(1, 5):
            it.engine.lose("a")
            await it.until(lambda lost=lost: len(it.named("entry.lost")) == lost)  # type: ignore[misc]
            if lost < 4:
                await it.until(lambda: it.states() == {"a": "warm"})
        await it.until(lambda: it.states() == {"a": "failed"})
        assert {event["cause"] for event in it.named("entry.lost")} == {"the engine no longer holds it"}
        (failed,) = it.named("entry.failed")
        assert failed["reason"].startswith("lost more than 3 times within an hour: ")
        assert 3000 < failed["retry_in_s"] <= 3600
        await anyio.sleep(0.1)
        assert it.engine.names_of("warm").count("a") == 4
        # Whoever edits it, or asks for it, need not wait.
        it.daemon.rewarm(["a"])
        await it.until(lambda: it.states() == {"a": "warm"})
        tasks.cancel_scope.cancel()


class Clocks:
    """Two clocks that can come apart."""

    def __init__(self) -> None:
        self.ticks, self.ahead = 0.0, 1_700_000_000.0

    def monotonic(self) -> float:
        return self.ticks

    def wall(self) -> float:
        return self.ticks + self.ahead


@pytest.mark.parametrize("jump", [8 * 3600.0, -7200.0, 0.0])
async def test_after_a_sleep_or_a_jump_of_the_clock_there_is_a_proof_at_once(
    jump: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks, rounds = Clocks(), []

    async def sleep(seconds: float) -> None:
        clocks.ticks += seconds
        if clocks.ticks >= 60:
            clocks.ahead += jump
        if clocks.ticks > 200:
            tasks.cancel_scope.cancel()
        await anyio.lowlevel.checkpoint()

    def slots() -> dict[str, Slot]:
        rounds.append(clocks.ticks)
        return {}

    monkeypatch.setattr("warmd.proof.anyio.sleep", sleep)
    prover = Prover(
        FakeEngine(), slots, lambda key, cached: None, 150, wall=clocks.wall, monotonic=clocks.monotonic
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(prover.run)
    assert rounds[0] == (60 if jump else 150)
