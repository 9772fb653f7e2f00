"""The loop, on a scripted engine and a real file."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from warmd.crash.quarantine import Quarantine
from warmd.daemon import Daemon
from warmd.disk.status import DiskStatus
from warmd.engines.base import EngineDiedError
from warmd.errors import NotWarmableError, RenderError
from warmd.events import Event
from warmd.settings import MemorySettings, Settings, WarmSettings, WatchSettings
from warmd.status import EntryStatus, status_json
from warmd.testing import FakeEngine

Json = dict[str, Any]
QUICK = WatchSettings(settle=0.01, ceiling=0.1, rehash=0.2)


class Running:
    """A daemon under test, with its engine, its file and its events."""

    def __init__(
        self,
        path: Path,
        engine: FakeEngine,
        concurrency: int,
        *,
        folder: Path | None = None,
        limit: str = "auto",
        watch: WatchSettings = QUICK,
        warm: WarmSettings | None = None,
        best_rate: Callable[[str], float | None] = lambda model: None,
    ) -> None:
        self.path, self.engine = path, engine
        self.events: list[Event] = []
        settings = Settings(
            watch=watch,
            warm=replace(warm or WarmSettings(), concurrency=concurrency),
            memory=MemorySettings(look=0.05),
        )
        self._news = anyio.Event()
        self.quarantine = Quarantine(folder, limit, self._emit)
        self.daemon = Daemon(
            engine,
            path,
            settings,
            emit=self._emit,
            randomness=lambda: 0.5,
            quarantine=self.quarantine,
            best_rate=best_rate,
        )

    def _emit(self, event: Event) -> None:
        self.events.append(event)
        self._news.set()

    def save(self, *entries: Any) -> None:
        self.path.write_text(json.dumps(list(entries)), encoding="utf-8")

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for events until something holds."""
        with anyio.fail_after(10):
            while not holds():
                self._news = anyio.Event()
                with anyio.move_on_after(0.05):
                    await self._news.wait()

    async def applied(self, generation: int) -> None:
        await self.until(lambda: self.daemon.statistics().document.applied >= generation)

    def named(self, name: str) -> list[Json]:
        return [dict(event.fields) for event in self.events if event.name == name]

    def states(self) -> dict[str, str]:
        return {entry.name: entry.state for entry in self.daemon.statistics().entries}

    def status(self, name: str) -> EntryStatus:
        return next(entry for entry in self.daemon.statistics().entries if entry.name == name)


@asynccontextmanager
async def running(
    path: Path,
    *entries: Any,
    engine: FakeEngine | None = None,
    concurrency: int = 1,
    watch: WatchSettings = QUICK,
    warm: WarmSettings | None = None,
    best_rate: Callable[[str], float | None] = lambda model: None,
) -> AsyncIterator[Running]:
    found = Running(path, engine or FakeEngine(), concurrency, watch=watch, warm=warm, best_rate=best_rate)
    found.save(*entries)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(found.daemon.run)
        yield found
        tasks.cancel_scope.cancel()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "prompts.json"


def entry(name: str, content: str = "", **more: Any) -> Json:
    return {"name": name, "messages": [{"role": "system", "content": content or f"I am {name}"}], **more}


async def test_entries_are_warmed_by_priority_and_then_in_file_order(path: Path) -> None:
    async with running(path, entry("a"), entry("b", priority=5), entry("c")) as it:
        await it.applied(1)
        assert it.engine.names_of("warm") == ["b", "a", "c"]
        assert it.states() == {"a": "warm", "b": "warm", "c": "warm"}


async def test_what_happened_is_told_in_events(path: Path) -> None:
    async with running(path, entry("a")) as it:
        await it.applied(1)
        size = it.status("a").tokens
        names = [event.name for event in it.events]
        assert names == [
            "daemon.started",
            "prompts.accepted",
            "plan.made",
            "entry.planned",
            "daemon.ready",
            "entry.warming",
            "entry.warmed",
        ]
        assert it.named("plan.made") == [
            {
                "generation": 1,
                "keep": 0,
                "warm": 1,
                "drop": 0,
                "defer": 0,
                "new_tokens": size,
                "disk_tokens": 0,
            }
        ]
        assert it.named("entry.planned") == [
            {
                "entry": "a",
                "tokens": size,
                "own_tokens": size,
                "shared_tokens": 0,
                "kv_bytes": it.status("a").kv_bytes,
                "fits": True,
            }
        ]
        warmed = it.named("entry.warmed")[0]
        assert {**warmed, "ms": 0} == {
            "entry": "a",
            "tokens": size,
            "new_tokens": size,
            "reused_tokens": 0,
            "source": "prefill",
            "ms": 0,
            "kv_bytes": it.status("a").kv_bytes,
            "disk_tokens": 0,
            "disk_bytes": 0,
            "disk_ms": 0,
        }


async def test_a_plan_tells_what_is_prefilled_apart_from_what_is_on_disk(path: Path) -> None:
    engine = FakeEngine()
    engine.keep_on_disk(DiskStatus("/kv", 1, 5), a=20, b=1_000_000)
    async with running(path, entry("a"), entry("b"), entry("c"), engine=engine) as it:
        await it.applied(1)
        own = {told["entry"]: told["own_tokens"] for told in it.named("entry.planned")}
        (told,) = it.named("plan.made")
        assert (told["new_tokens"], told["disk_tokens"]) == (own["a"] - 20 + own["c"], 20 + own["b"])


async def test_a_reason_to_look_that_changes_nothing_is_not_told(path: Path) -> None:
    engine = FakeEngine()
    gate = engine.hold("a")
    async with running(path, entry("a"), entry("b"), engine=engine) as it:
        await it.until(lambda: it.states() == {"a": "warming", "b": "pending"})
        engine.lose("nothing that exists")
        await anyio.wait_all_tasks_blocked()
        gate.set()
        await it.applied(1)
        assert len(it.named("plan.made")) == 1


@pytest.mark.promise(2)
async def test_a_thousand_saves_in_a_second_are_two_plans_at_most_and_the_last_wins(path: Path) -> None:
    def storm() -> float:
        began = time.monotonic()
        for number in range(1, 1001):
            it.save(entry(f"n{number}"))
        return time.monotonic() - began

    # As it is by default.
    async with running(path, entry("n0"), watch=WatchSettings()) as it:
        await it.applied(1)
        before = len(it.named("plan.made"))
        seconds = await anyio.to_thread.run_sync(storm)
        await it.until(lambda: it.states() == {"n1000": "warm"})
        # A machine too busy for a thousand saves a second may take one more for each further second.
        assert len(it.named("plan.made")) - before <= 2 + int(seconds)
        assert it.engine.names_of("warm")[-1] == "n1000"


async def test_reorder_reindent_touch_and_rename_warm_nothing(path: Path) -> None:
    async with running(path, entry("a", "one"), entry("b", "two")) as it:
        await it.applied(1)
        it.save(entry("b", "two"), entry("a", "one"))
        await it.applied(2)
        it.path.write_text(json.dumps([entry("b", "two"), entry("a", "one")], indent=3), encoding="utf-8")
        await it.applied(3)
        it.path.touch()
        it.save(entry("renamed", "two"), entry("a", "one"))
        await it.applied(4)
        assert it.engine.names_of("warm") == ["a", "b"]
        assert it.engine.names_of("drop") == []
        assert it.states() == {"renamed": "warm", "a": "warm"}


async def test_an_edited_entry_s_old_prefix_serves_until_the_new_one_is_warm(path: Path) -> None:
    async with running(path, entry("a", "before")) as it:
        await it.applied(1)
        old = set(it.engine.held())
        gate = it.engine.hold("a")
        it.save(entry("a", "after"))
        await it.until(lambda: it.states() == {"a": "warming"})
        assert old <= set(it.engine.held())
        gate.set()
        await it.applied(2)
        assert not old & set(it.engine.held())
        assert it.named("entry.dropped") == [
            {"entry": "a", "tokens": (it.status("a").tokens or 0) + 1, "reason": None}
        ]


async def test_the_old_prefix_serves_also_when_a_save_comes_in_mid_warm(path: Path) -> None:
    async with running(path, entry("a", "before")) as it:
        await it.applied(1)
        old = set(it.engine.held())
        gate = it.engine.hold("a")
        it.save(entry("a", "after"))
        await it.until(lambda: it.states() == {"a": "warming"})
        it.save(entry("a", "after"), entry("b"))
        await it.until(lambda: it.daemon.statistics().document.accepted == 3 and "b" in it.states())
        assert old <= set(it.engine.held())
        gate.set()
        await it.applied(3)
        assert not old & set(it.engine.held())


async def test_a_removed_entry_is_freed(path: Path) -> None:
    async with running(path, entry("a"), entry("b")) as it:
        await it.applied(1)
        it.save(entry("b"))
        await it.applied(2)
        assert len(it.engine.held()) == 1
        assert it.states() == {"b": "warm"}


async def test_entries_with_equal_tokens_are_warmed_once(path: Path) -> None:
    async with running(path, entry("a", "same"), entry("b", "same")) as it:
        await it.applied(1)
        assert len(it.engine.names_of("warm")) == 1
        assert [line["new_tokens"] > 0 for line in it.named("entry.warmed")] == [True, False]
        it.save(entry("b", "same"))
        await it.applied(2)
        assert len(it.engine.held()) == 1


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_concurrency_is_bounded_also_across_reloads(path: Path, concurrency: int) -> None:
    async with running(path, *(entry(f"a{n}") for n in range(9)), concurrency=concurrency) as it:
        for generation in range(2, 6):
            await it.until(lambda: it.engine.running > 0 or it.daemon.statistics().document.applied > 0)
            it.save(*(entry(f"a{n}", f"{generation} {n}") for n in range(9)))
            await it.until(lambda g=generation: it.daemon.statistics().document.accepted == g)  # type: ignore[misc]
        await it.applied(5)
        assert it.engine.peak_concurrency <= concurrency
        assert len(it.engine.held()) == 9


async def test_a_b_a_commits_nothing_of_b_and_warms_a_once(path: Path) -> None:
    async with running(path, entry("x", "version a")) as it:
        await it.applied(1)
        gate = it.engine.hold("x")
        it.save(entry("x", "version b"))
        await it.until(lambda: it.states() == {"x": "warming"})
        it.save(entry("x", "version a"))
        await it.applied(3)
        gate.set()
        assert it.states() == {"x": "warm"}
        assert len(it.engine.names_of("warm")) == 2
        assert len(it.engine.held()) == 1


async def test_the_status_says_that_the_version_before_an_edit_serves_until_the_new_one_does(
    path: Path,
) -> None:
    async with running(path, entry("x", "version a"), entry("y")) as it:
        await it.applied(1)
        gate = it.engine.hold("x")
        it.save(entry("x", "version b"), entry("y"))
        await it.until(lambda: it.states() == {"x": "warming", "y": "warm"})
        note = "the version before the edit serves until then"
        assert (it.status("x").reason, it.status("y").reason) == (note, None)
        gate.set()
        await it.applied(2)
        assert (it.status("x").state, it.status("x").reason) == ("warm", None)


async def test_the_total_of_hits_does_not_shrink_with_an_edit(path: Path) -> None:
    async with running(path, entry("a", "one")) as it:
        await it.applied(1)
        it.engine.serve("a")
        size = it.status("a").tokens
        it.save(entry("a", "two"))
        await it.applied(2)
        assert it.status("a").tokens_saved == 0
        totals = status_json(it.daemon.statistics())["totals"]
        assert (totals["hits"], totals["tokens_saved"]) == (1, size)


async def test_the_status_says_when_the_file_was_looked_at_and_when_the_system_told_of_a_change(
    path: Path,
) -> None:
    began = time.time()
    async with running(path, entry("a")) as it:
        await it.applied(1)
        await it.until(lambda: it.daemon.statistics().document.last_check_at is not None)

        def is_heard() -> bool:
            # A neighbour: a change of the file itself may be found by a look that comes before the event.
            path.with_name("neighbour").touch()
            return it.daemon.statistics().document.last_event_at is not None

        await it.until(is_heard)
        document = status_json(it.daemon.statistics())["document"]
        assert began <= document["last_event_at"] <= time.time()
        assert began <= document["last_check_at"] <= time.time()


async def test_entries_that_nobody_has_looked_at_yet_are_pending(path: Path) -> None:
    engine = FakeEngine()
    engine.load(None)
    async with running(path, entry("a"), entry("b"), engine=engine) as it:
        await it.until(lambda: it.daemon.statistics().document.accepted == 1)
        assert it.daemon.statistics().entries == (EntryStatus("a"), EntryStatus("b"))
        assert it.states() == {"a": "pending", "b": "pending"}


async def test_a_warming_that_is_still_wanted_goes_on_through_a_reload(path: Path) -> None:
    engine = FakeEngine()
    gate = engine.hold("a")
    async with running(path, entry("a"), engine=engine) as it:
        await it.until(lambda: it.states() == {"a": "warming"})
        it.save(entry("a"), entry("b"))
        await it.until(lambda: it.daemon.statistics().document.accepted == 2)
        gate.set()
        await it.applied(2)
        assert it.engine.names_of("warm") == ["a", "b"]


async def test_a_warming_gives_way_to_an_entry_of_higher_priority(path: Path) -> None:
    engine = FakeEngine()
    gate = engine.hold("low")
    async with running(path, entry("low"), entry("high", priority=1), engine=engine) as it:
        await it.until(lambda: it.states() == {"low": "warming", "high": "warm"})
        it.save(entry("low"), entry("high", "edited", priority=1))
        await it.until(lambda: it.states()["high"] == "warm" and len(engine.names_of("warm")) > 3)
        gate.set()
        await it.applied(2)
        assert engine.names_of("warm") == ["high", "low", "high", "low"]
        assert it.named("entry.failed") == []


async def test_a_warming_goes_on_beside_an_entry_of_equal_priority(path: Path) -> None:
    engine = FakeEngine()
    gate = engine.hold("first")
    async with running(path, entry("first", priority=1), engine=engine) as it:
        await it.until(lambda: it.states() == {"first": "warming"})
        it.save(entry("second", priority=1), entry("first", priority=1))
        await it.until(lambda: it.daemon.statistics().document.accepted == 2)
        gate.set()
        await it.applied(2)
        assert engine.names_of("warm") == ["first", "second"]


async def test_a_failed_warming_is_tried_again_later(path: Path) -> None:
    engine = FakeEngine()
    engine.fail_warm("a", ValueError("secret"))
    async with running(path, entry("a"), engine=engine) as it:
        await it.until(lambda: it.states() == {"a": "failed"})
        assert it.named("entry.failed") == [
            {"entry": "a", "state": "failed", "reason": "warming failed with ValueError", "retry_in_s": 1.0}
        ]
        await it.until(lambda: it.states() == {"a": "warm"})


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (RenderError("System role not supported"), "failed"),
        (NotWarmableError("image content"), "unwarmable"),
    ],
)
async def test_what_cannot_be_rendered_waits_for_an_edit_and_stops_nobody(
    path: Path, error: RenderError, state: str
) -> None:
    engine = FakeEngine()
    engine.fail_render("a", error)
    async with running(path, entry("a"), entry("b"), engine=engine) as it:
        await it.applied(1)
        assert it.states() == {"a": state, "b": "warm"}
        it.save(entry("a"), entry("b"), entry("c"))
        await it.applied(2)
        assert it.named("entry.failed") == [
            {"entry": "a", "state": state, "reason": str(error), "retry_in_s": None}
        ]
        assert engine.names_of("render").count("a") == 1
        engine.fail_render("a", None)
        it.save(entry("a", "edited"), entry("b"), entry("c"))
        await it.applied(3)
        assert it.states() == {"a": "warm", "b": "warm", "c": "warm"}


async def test_an_unexpected_error_in_rendering_shows_its_type_only(path: Path) -> None:
    engine = FakeEngine()
    engine.fail_render("a", KeyError("secret"))
    async with running(path, entry("a"), engine=engine) as it:
        await it.applied(1)
        assert it.status("a").reason == "rendering failed with KeyError"


async def test_what_is_stored_but_not_served_is_said_once_and_not_chased(path: Path) -> None:
    engine = FakeEngine()
    engine.miss("a", 3)
    async with running(path, entry("a"), engine=engine) as it:
        await it.applied(1)
        assert it.states() == {"a": "stored_not_served"}
        it.save(entry("a"), entry("b"))
        await it.applied(2)
        assert engine.names_of("warm") == ["a", "b"]
        assert [line["state"] for line in it.named("entry.failed")] == ["stored_not_served"]


async def test_an_engine_that_cannot_look_up_is_believed(path: Path) -> None:
    engine = FakeEngine()
    engine.miss("a", None)
    async with running(path, entry("a"), engine=engine) as it:
        await it.applied(1)
        assert it.states() == {"a": "warm"}


async def test_a_lost_prefix_is_reported_and_warmed_again(path: Path) -> None:
    async with running(path, entry("a")) as it:
        await it.applied(1)
        it.engine.lose("a")
        await it.until(lambda: len(it.named("entry.warmed")) == 2)
        assert it.named("entry.lost") == [
            {"entry": "a", "tokens": it.status("a").tokens, "cause": "the engine no longer holds it"}
        ]


async def test_another_model_means_everything_is_rendered_and_warmed_again(path: Path) -> None:
    async with running(path, entry("a"), entry("b")) as it:
        await it.applied(1)
        it.engine.load("other")
        await it.until(lambda: len(it.engine.held()) == 2)
        assert it.engine.names_of("render") == ["a", "b", "a", "b"]
        assert it.named("engine.model_changed") == [{"model": "other", "previous": "fake"}]


async def test_the_same_model_loaded_anew_is_no_other_model(path: Path) -> None:
    async with running(path, entry("a")) as it:
        await it.applied(1)
        it.engine.load(None)
        await it.until(lambda: it.named("engine.model_changed") != [])
        it.engine.load("fake")
        await it.until(lambda: len(it.engine.held()) == 1)
        assert it.named("engine.model_changed") == [{"model": None, "previous": "fake"}]
        assert it.named("engine.reloaded") == [{"model": "fake"}]


async def test_that_a_server_elsewhere_has_gone_is_left_to_the_engine_to_tell(path: Path) -> None:
    engine = FakeEngine()
    engine.be_elsewhere("http://s:1")
    async with running(path, entry("a"), engine=engine) as it:
        await it.applied(1)
        it.engine.load(None)
        await it.until(lambda: it.daemon.statistics().model is None)
        it.engine.load("fake")
        await it.until(lambda: len(it.engine.held()) == 1)
        assert it.named("engine.model_changed") == []
        assert it.named("engine.reloaded") == [{"model": "fake"}]


async def test_a_model_that_goes_in_mid_warm_is_no_failure_of_the_entry(path: Path) -> None:
    engine = FakeEngine()
    gate = engine.hold("a")
    async with running(path, entry("a"), engine=engine) as it:
        await it.until(lambda: it.states() == {"a": "warming"})
        engine.load("other")
        gate.set()
        await it.until(lambda: it.states() == {"a": "warm"})
        assert it.named("entry.failed") == []


async def test_without_a_model_nothing_is_tried_until_there_is_one(path: Path) -> None:
    async with running(path, entry("a"), engine=FakeEngine(model=None)) as it:
        await it.until(lambda: bool(it.named("prompts.accepted")))
        it.engine.load("late")
        await it.applied(1)
        assert it.states() == {"a": "warm"}


async def test_a_bad_file_keeps_the_last_good_document(path: Path) -> None:
    async with running(path, entry("a")) as it:
        await it.applied(1)
        it.path.write_text("[", encoding="utf-8")
        await it.until(lambda: bool(it.named("prompts.rejected")))
        document = it.daemon.statistics().document
        assert (document.seen, document.accepted, len(document.errors)) == (2, 1, 1)
        assert it.states() == {"a": "warm"}
        it.save(entry("a"))
        await it.until(lambda: it.daemon.statistics().document.accepted == 3)
        assert it.daemon.statistics().document.errors == ()
        assert it.engine.names_of("warm") == ["a"]


async def test_an_explicit_empty_list_keeps_nothing_warm(path: Path) -> None:
    async with running(path, entry("a")) as it:
        await it.applied(1)
        it.save()
        await it.applied(2)
        assert dict(it.engine.held()) == {}


async def test_a_dead_engine_ends_the_daemon(path: Path) -> None:
    it = Running(path, FakeEngine(), 1)
    it.save(entry("a"))

    async def die() -> None:
        await it.applied(1)
        it.engine.die("gone")

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(die)
            with pytest.raises(EngineDiedError, match="gone"):
                await it.daemon.run()


async def test_an_engine_that_dies_in_mid_warm_ends_the_daemon(path: Path) -> None:
    engine = FakeEngine()
    engine.fail_warm("a", EngineDiedError("gone"))
    it = Running(path, engine, 1)
    it.save(entry("a"))
    with anyio.fail_after(10), pytest.raises(EngineDiedError):
        await it.daemon.run()
    assert it.named("entry.failed") == []


async def test_hits_are_shown_per_entry(path: Path) -> None:
    async with running(path, entry("a")) as it:
        await it.applied(1)
        it.engine.serve("a")
        assert it.status("a").hits == 1
        it.daemon.rewarm(["a"])
        await it.until(lambda: len(it.named("entry.warmed")) == 2)
        assert (it.status("a").hits, it.status("a").tokens_saved) == (1, it.status("a").tokens)


async def test_an_entry_that_ends_in_a_user_turn_says_where_its_prefix_ends(path: Path) -> None:
    messages = [{"role": "system", "content": "rules"}, {"role": "user", "content": "x"}]
    async with running(path, {"name": "a", "messages": messages}) as it:
        await it.applied(1)
        assert "last user turn" in (it.status("a").reason or "")


async def test_an_entry_that_names_a_model_is_kept_warm_in_that_one_only(path: Path) -> None:
    engine = FakeEngine(model="folder/small")
    entries = [entry("any"), entry("small", model="small"), entry("large", model="hub/large")]
    async with running(path, *entries, engine=engine) as it:
        await it.applied(1)
        assert it.states() == {"any": "warm", "small": "warm", "large": "pending"}
        assert it.status("large").reason == "it is for the model 'hub/large', which is not loaded"
        assert it.named("entry.failed") == []
        engine.load("hub/large")
        await it.until(lambda: it.states() == {"any": "warm", "small": "pending", "large": "warm"})
