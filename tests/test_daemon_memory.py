"""What the daemon does when there is little memory, with the scripted engine: DESIGN's fourth promise."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.test_daemon import Running, entry, running
from warmd.admission import FOR_LIMIT, FOR_PRIORITY, FOR_REPLACEMENT, FOR_SYSTEM, SHORT_OF_MEMORY
from warmd.engines.base import NoRoomError
from warmd.memory.cost import Cost
from warmd.testing import FakeEngine


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "prompts.json"


class Counting(FakeEngine):
    """Counts how often it was asked what a prefix costs: for each plan."""

    plans = 0

    def cost(self) -> Cost:
        self.plans += 1
        return super().cost()


def limited(tokens: int) -> Counting:
    """An engine with room for so many tokens."""
    engine = Counting(kv_bytes_per_token=1)
    engine.limit_memory(tokens)
    return engine


async def planned_again(it: Running) -> None:
    """Wait until the daemon has looked at the memory and planned anew, several times."""
    engine = it.engine
    assert isinstance(engine, Counting)
    enough = engine.plans + 3
    await it.until(lambda: engine.plans >= enough)
    await anyio.wait_all_tasks_blocked()


def reasons(it: Running) -> list[str]:
    return [event["reason"] for event in it.named("entry.deferred")]


@pytest.mark.promise(4)
async def test_what_does_not_fit_is_deferred_with_its_bytes_and_comes_when_there_is_room(path: Path) -> None:
    engine = limited(150)
    async with running(path, entry("a", "x" * 60), entry("b", "y" * 60), engine=engine) as it:
        await it.until(lambda: it.states() == {"a": "warm", "b": "deferred"})
        size, held = it.status("b").tokens or 0, it.status("a").kv_bytes or 0
        assert it.named("entry.deferred") == [
            {
                "entry": "b",
                "needed": size,
                "available": 150 - held,
                "reason": f"needs {size} B, {150 - held} B are available",
            }
        ]
        assert it.status("b").reason == f"needs {size} B, {150 - held} B are available"
        assert it.daemon.statistics().document.applied == 1
        await planned_again(it)
        assert len(it.named("entry.deferred")) == 1
        engine.limit_memory(1000)
        await it.until(lambda: it.states() == {"a": "warm", "b": "warm"})
        memory = it.daemon.statistics().memory
        assert memory is not None
        assert memory.warm == held + size


async def test_what_can_never_fit_says_so(path: Path) -> None:
    async with running(path, entry("a", "x" * 900), engine=limited(100)) as it:
        await it.until(lambda: it.states() == {"a": "deferred"})
        assert "can never fit under the limit of 100 B" in reasons(it)[0]


async def test_higher_priority_takes_the_place_of_lower_and_gives_it_back(path: Path) -> None:
    engine = limited(150)
    async with running(path, entry("low", "x" * 60), engine=engine) as it:
        await it.until(lambda: it.states() == {"low": "warm"})
        it.save(entry("low", "x" * 60), entry("high", "y" * 60, priority=1))
        await it.until(lambda: it.states() == {"low": "deferred", "high": "warm"})
        assert [event["reason"] for event in it.named("entry.dropped")] == [FOR_PRIORITY]
        assert reasons(it) == [FOR_PRIORITY]
        assert it.named("entry.lost") == []
        it.save(entry("low", "x" * 60))
        await it.until(lambda: it.states() == {"low": "warm"})


async def test_the_old_prefix_is_freed_first_where_both_do_not_fit(path: Path) -> None:
    engine = limited(150)
    async with running(path, entry("a", "x" * 60), engine=engine) as it:
        await it.until(lambda: it.states() == {"a": "warm"})
        it.save(entry("a", "y" * 60))
        await it.applied(2)
        assert it.states() == {"a": "warm"}
        assert [event["reason"] for event in it.named("entry.dropped")] == [FOR_REPLACEMENT]
        names = [event.name for event in it.events]
        assert names.index("entry.dropped") < len(names) - 1 - names[::-1].index("entry.warmed")


async def test_pressure_puts_off_what_is_not_begun_and_critical_pressure_frees_the_lowest(path: Path) -> None:
    engine = limited(1000)
    entries = [entry("a", "x" * 60, priority=1), entry("b", "y" * 60)]
    async with running(path, *entries, engine=engine) as it:
        await it.until(lambda: set(it.states().values()) == {"warm"})
        engine.limit_memory(1000, pressure=2)
        await it.until(lambda: len(it.named("memory.pressure")) == 1)
        it.save(*entries, entry("c", "z" * 60, priority=2))
        await it.until(lambda: it.states() == {"a": "warm", "b": "warm", "c": "deferred"})
        assert reasons(it) == [SHORT_OF_MEMORY]
        engine.limit_memory(1000, pressure=4)
        # As long as it lasts, the rest follows: the lowest goes first.
        await it.until(lambda: [event["entry"] for event in it.named("entry.dropped")] == ["b", "a"])
        assert {event["reason"] for event in it.named("entry.dropped")} == {FOR_SYSTEM}
        engine.limit_memory(1000)
        await it.until(lambda: set(it.states().values()) == {"warm"})
        assert [event["pressure"] for event in it.named("memory.pressure")] == [2, 4, 1]


async def test_a_lowered_limit_frees_the_lowest(path: Path) -> None:
    engine = limited(1000)
    async with running(path, entry("a", "x" * 60), entry("b", "y" * 60), engine=engine) as it:
        await it.until(lambda: set(it.states().values()) == {"warm"})
        engine.limit_memory(150)
        await it.until(lambda: it.states() == {"a": "warm", "b": "deferred"})
        await it.until(lambda: [event["reason"] for event in it.named("entry.dropped")] == [FOR_LIMIT])
        await it.until(lambda: it.daemon.statistics().memory.headroom >= 0)  # type: ignore[union-attr]


async def test_memory_that_cannot_be_read_warms_nothing_and_is_told_once(path: Path) -> None:
    engine = limited(1000)
    engine.limit_memory(1000, error="cannot read the memory: gone")
    async with running(path, entry("a"), engine=engine) as it:
        await it.until(lambda: it.states() == {"a": "deferred"})
        await planned_again(it)
        assert it.named("memory.failed") == [{"reason": "cannot read the memory: gone"}]
        assert engine.names_of("warm") == []
        engine.limit_memory(1000)
        await it.until(lambda: it.states() == {"a": "warm"})
        # The one line says it for all.
        assert it.named("entry.deferred") == []


async def test_a_limit_below_what_is_taken_anyway_is_told_in_one_line(path: Path) -> None:
    engine = limited(0)
    async with running(path, entry("a"), entry("b"), engine=engine) as it:
        await it.until(lambda: set(it.states().values()) == {"deferred"})
        await planned_again(it)
        reason = "the memory limit of 0 B leaves no room: 0 B are taken without any warm prefix, "
        assert it.named("memory.failed") == [{"reason": f"{reason}0 B are kept for live requests"}]
        assert it.named("entry.deferred") == []
        assert it.status("a").reason == it.named("memory.failed")[0]["reason"]
        engine.limit_memory(1000)
        await it.until(lambda: set(it.states().values()) == {"warm"})


async def test_a_warming_that_runs_out_of_room_is_deferred_not_failed_and_goes_on_later(path: Path) -> None:
    engine = limited(1000)
    engine.fail_warm("a", NoRoomError(70, 30))
    async with running(path, entry("a"), engine=engine) as it:
        await it.until(lambda: it.states() == {"a": "deferred"})
        assert it.named("entry.deferred") == [
            {"entry": "a", "needed": 70, "available": 30, "reason": "needs 70 B, 30 B are available"}
        ]
        await it.until(lambda: it.states() == {"a": "warm"})
        assert it.named("entry.failed") == []


async def test_the_engine_is_told_what_is_to_be_held_before_it_warms(path: Path) -> None:
    engine = limited(150)
    gate = engine.hold("a")
    async with running(path, entry("a", "x" * 60), entry("b", "y" * 60), engine=engine) as it:
        await it.until(lambda: it.states() == {"a": "warming", "b": "deferred"})
        # What lacks the bytes is not to be held: nothing of it should stay.
        assert len(engine.declared) == 1
        gate.set()
        await it.until(lambda: it.states()["a"] == "warm")
        engine.limit_memory(1000)
        await it.until(lambda: it.states()["b"] == "warm")
        assert engine.declared == set(engine.held())


async def test_a_model_whose_state_cannot_be_kept_is_told_in_one_line(path: Path) -> None:
    engine = FakeEngine(unwarmable="its state cannot be kept warm: x.Y cannot be copied (TypeError)")
    async with running(path, entry("a"), entry("b"), engine=engine) as it:
        await it.until(lambda: it.states() == {"a": "unwarmable", "b": "unwarmable"})
        assert it.named("engine.unwarmable") == [
            {"model": "fake", "reason": "its state cannot be kept warm: x.Y cannot be copied (TypeError)"}
        ]
        assert it.named("entry.failed") == []
        assert (it.status("a").reason or "").startswith("its state cannot be kept warm")
        engine.load("other")
        await it.until(lambda: set(it.states().values()) == {"warm"})


async def test_two_quick_edits_keep_what_is_warm_until_the_last_is(path: Path) -> None:
    engine = limited(1000)
    async with running(path, entry("a", "one"), engine=engine) as it:
        await it.until(lambda: it.states() == {"a": "warm"})
        (first,) = engine.held()
        gate = engine.hold("a")
        it.save(entry("a", "two"))
        await it.until(lambda: it.states() == {"a": "warming"})
        it.save(entry("a", "three"))
        await it.until(lambda: it.daemon.statistics().document.accepted == 3)
        await anyio.wait_all_tasks_blocked()
        assert list(engine.held()) == [first]
        gate.set()
        await it.until(lambda: it.states() == {"a": "warm"})
        await it.until(lambda: first not in engine.held())


async def test_an_edit_that_waits_for_memory_is_not_told_again_and_again(path: Path) -> None:
    engine = limited(150)
    async with running(path, entry("a", "x" * 60), engine=engine) as it:
        await it.until(lambda: it.states() == {"a": "warm"})
        it.save(entry("a", "y" * 900))
        await it.until(lambda: it.states() == {"a": "deferred"})
        told = len(it.events)
        await planned_again(it)
        assert [event.name for event in it.events[told:]] == []


async def test_what_turned_out_to_need_more_is_not_begun_again_and_again(path: Path) -> None:
    engine = limited(150)
    engine.fail_warm("a", NoRoomError(200, 100), times=100)
    async with running(path, entry("a", "x" * 60), engine=engine) as it:
        await it.until(lambda: it.states() == {"a": "deferred"})
        await planned_again(it)
        assert engine.names_of("warm") == ["a"]
        engine.limit_memory(250)
        await it.until(lambda: engine.names_of("warm") == ["a", "a"])


async def test_what_found_no_room_is_tried_ever_later_and_is_in_nobodys_way_meanwhile(
    path: Path,
) -> None:
    engine = limited(1000)
    # By what it says it needs, there is room each time.
    engine.fail_warm("a", NoRoomError(70, 30), times=100)
    async with running(path, entry("a", "x" * 60), entry("b", "y" * 60), engine=engine) as it:
        await it.until(lambda: it.states() == {"a": "deferred", "b": "warm"})
        await it.until(lambda: engine.declared == set(engine.held()))
        waits = []
        for count in range(2, 5):
            before = anyio.current_time()
            await it.until(lambda count=count: engine.names_of("warm").count("a") == count)  # type: ignore[misc]
            waits.append(anyio.current_time() - before)
        # Looks at the memory are 0.05 s apart here: 0.05, 0.1 and 0.2 s at least.
        assert waits[2] > 0.19
