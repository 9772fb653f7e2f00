"""What a person may ask of a daemon that runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.patience import PATIENCE
from tests.test_daemon import Running, entry, running
from warmd.again import UnknownEntryError
from warmd.control.errors import ControlError
from warmd.control.handlers import make_handlers
from warmd.engines.base import Prefix
from warmd.errors import RenderError
from warmd.prompts.document import Entry
from warmd.testing import FakeEngine


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "prompts.json"


async def ask(it: Running, command: str, **arguments: Any) -> Any:
    """What a handler answers, through JSON."""
    with anyio.fail_after(PATIENCE):
        return json.loads(json.dumps(await make_handlers(it.daemon)[command](arguments)))


async def test_status_tells_what_the_daemon_knows(path: Path) -> None:
    async with running(path, entry("a")) as it:
        await it.applied(1)
        found = await ask(it, "status")
        assert [(line["name"], line["state"]) for line in found["entries"]] == [("a", "warm")]
        assert found["document"]["path"] == str(path)
        assert found["paused"] is False


async def test_rewarm_drops_and_warms_again_what_is_named(path: Path) -> None:
    async with running(path, entry("a"), entry("b")) as it:
        await it.applied(1)
        assert await ask(it, "rewarm", names=["b"]) == {"entries": ["b"], "paused": False}
        await it.until(lambda: len(it.named("entry.warmed")) == 3)
        assert it.engine.names_of("warm") == ["a", "b", "b"]
        assert it.named("entry.dropped") == [
            {"entry": "b", "tokens": it.status("b").tokens, "reason": "it is to be warmed again"}
        ]
        assert it.named("entry.lost") == []
        assert it.states() == {"a": "warm", "b": "warm"}


async def test_rewarm_without_names_means_all(path: Path) -> None:
    async with running(path, entry("a"), entry("b")) as it:
        await it.applied(1)
        assert await ask(it, "rewarm") == {"entries": ["a", "b"], "paused": False}
        await it.until(lambda: len(it.named("entry.warmed")) == 4)
        assert it.states() == {"a": "warm", "b": "warm"}


async def test_rewarm_frees_also_what_there_may_be_of_an_entry_whose_turn_has_not_come(path: Path) -> None:
    engine = FakeEngine()
    gate = engine.hold("a")
    async with running(path, entry("a"), entry("b"), engine=engine) as it:
        await it.until(lambda: it.states() == {"a": "warming", "b": "pending"})
        await ask(it, "rewarm")
        gate.set()
        await it.until(lambda: it.states() == {"a": "warm", "b": "warm"})
        assert sorted(engine.names_of("drop")) == ["a", "b"]
        # Nothing was held of it that anybody has heard of.
        assert [line["entry"] for line in it.named("entry.dropped")] == ["a"]


class LookingLong(FakeEngine):
    """Takes its time over the first look-up."""

    is_long = True

    async def look_up(self, entry: Entry, prefix: Prefix) -> int | None:
        if self.is_long:
            await anyio.sleep_forever()
        return await super().look_up(entry, prefix)


@pytest.mark.parametrize("is_overtaken", [False, True], ids=["paused", "by a higher priority"])
async def test_what_was_held_but_not_proved_when_it_was_stopped_is_proved_later(
    path: Path, is_overtaken: bool
) -> None:
    engine = LookingLong()
    async with running(path, entry("a"), engine=engine) as it:
        await it.until(lambda: bool(engine.held()))
        engine.is_long = False
        if is_overtaken:
            it.save(entry("a"), entry("b", priority=1))
        else:
            await ask(it, "pause")
            await ask(it, "resume")
        await it.until(lambda: set(it.states().values()) == {"warm"})
        assert "a" in [line["entry"] for line in it.named("entry.warmed")]


async def test_rewarm_begins_a_running_warming_anew(path: Path) -> None:
    engine = FakeEngine()
    gate = engine.hold("a")
    async with running(path, entry("a"), engine=engine) as it:
        await it.until(lambda: it.states() == {"a": "warming"})
        await ask(it, "rewarm", names=["a"])
        await it.until(lambda: engine.names_of("warm") == ["a", "a"])
        assert engine.names_of("drop") == ["a"]
        gate.set()
        await it.until(lambda: it.states() == {"a": "warm"})
        assert it.named("entry.failed") == []


async def test_nothing_is_warmed_again_before_what_may_be_wrong_of_it_is_freed(path: Path) -> None:
    gate = anyio.Event()

    class Slow(FakeEngine):
        async def drop(self, keys: Any) -> None:
            await gate.wait()
            await super().drop(keys)

    engine = Slow()
    async with running(path, entry("a"), entry("b"), engine=engine) as it:
        await it.applied(1)
        await ask(it, "rewarm", names=["a"])
        it.save(entry("a"), entry("b"), entry("c"))
        await it.until(lambda: it.states() == {"a": "pending", "b": "warm", "c": "warm"})
        assert engine.names_of("warm") == ["a", "b", "c"]
        gate.set()
        await it.until(lambda: engine.names_of("warm") == ["a", "b", "c", "a"])


@pytest.mark.parametrize("state", ["warming", "warm"])
async def test_what_is_warmed_again_is_told_in_the_order_in_which_it_happens(path: Path, state: str) -> None:
    engine = FakeEngine()
    gate = engine.hold("a")
    if state == "warm":
        gate.set()
    async with running(path, entry("a"), engine=engine) as it:
        await it.until(lambda: it.states() == {"a": state})
        before = len(it.events)
        await ask(it, "rewarm", names=["a"])
        gate.set()
        await it.until(lambda: it.states() == {"a": "warm"} and len(it.events) > before + 4)
        told = ["entry.dropped", "plan.made", "entry.planned", "entry.warming", "entry.warmed"]
        assert [event.name for event in it.events[before:]] == told


async def test_rewarm_tries_at_once_what_failed(path: Path) -> None:
    engine = FakeEngine()
    engine.fail_render("a", RenderError("no such filter"))
    engine.fail_warm("b", ValueError(), times=1)
    async with running(path, entry("a"), entry("b"), engine=engine) as it:
        await it.until(lambda: it.states() == {"a": "failed", "b": "failed"})
        engine.fail_render("a", None)
        await ask(it, "rewarm")
        await it.until(lambda: it.states() == {"a": "warm", "b": "warm"})
        assert it.named("entry.failed")[-1]["retry_in_s"] == 1.0


async def test_rewarm_in_the_middle_of_rendering_is_no_harm(path: Path) -> None:
    engine = FakeEngine()
    async with running(path, *(entry(f"{number}") for number in range(20)), engine=engine) as it:
        for count in range(1, 200, 7):
            await it.until(lambda count=count: len(engine.calls) >= count)  # type: ignore[misc]
            it.daemon.rewarm()
        await it.until(lambda: set(it.states().values()) == {"warm"})


async def test_an_unknown_name_changes_nothing_and_names_the_nearest(path: Path) -> None:
    async with running(path, entry("coder"), entry("shell")) as it:
        await it.applied(1)
        with pytest.raises(UnknownEntryError, match=r"^no entry is named 'codr'; the nearest is 'coder'$"):
            await ask(it, "rewarm", names=["shell", "codr"])
        assert it.engine.names_of("drop") == []
        it.save()
        await it.applied(2)
        with pytest.raises(UnknownEntryError, match="there are no entries"):
            await ask(it, "rewarm", names=["coder"])


async def test_pause_stops_what_runs_and_starts_nothing(path: Path) -> None:
    engine = FakeEngine()
    gate = engine.hold("a")
    async with running(path, entry("a"), entry("b"), engine=engine) as it:
        await it.until(lambda: it.states() == {"a": "warming", "b": "pending"})
        assert await ask(it, "pause") == {"paused": True, "was_paused": False}
        await it.until(lambda: engine.running == 0)
        gate.set()
        it.save(entry("a"), entry("b"), entry("c"))
        await it.until(lambda: it.states() == dict.fromkeys("abc", "pending"))
        assert (await ask(it, "status"))["paused"] is True
        assert engine.names_of("warm") == ["a"]
        assert await ask(it, "resume") == {"paused": False, "was_paused": True}
        await it.applied(2)
        assert it.states() == dict.fromkeys("abc", "warm")
        assert (await ask(it, "status"))["paused"] is False


async def test_the_plan_is_told_anew_when_warming_goes_on(path: Path) -> None:
    engine = FakeEngine()
    gate = engine.hold("a")
    async with running(path, entry("a"), engine=engine) as it:
        await it.until(lambda: it.states() == {"a": "warming"})
        await ask(it, "pause")
        await it.until(lambda: it.states() == {"a": "pending"})
        await anyio.wait_all_tasks_blocked()
        before = len(it.events)
        gate.set()
        await ask(it, "resume")
        await it.until(lambda: it.states() == {"a": "warm"})
        told = ["daemon.resumed", "plan.made", "entry.planned", "entry.warming", "entry.warmed"]
        assert [event.name for event in it.events[before:]] == told


async def test_what_is_warm_stays_so_while_paused_and_what_is_removed_goes(path: Path) -> None:
    async with running(path, entry("a"), entry("b")) as it:
        await it.applied(1)
        await ask(it, "pause")
        it.save(entry("a"))
        await it.until(lambda: len(it.engine.held()) == 1)
        assert it.states() == {"a": "warm"}


async def test_a_pause_is_told_once(path: Path) -> None:
    async with running(path, entry("a")) as it:
        for command in ("resume", "pause", "pause", "resume", "resume"):
            await ask(it, command)
        assert (len(it.named("daemon.paused")), len(it.named("daemon.resumed"))) == (1, 1)
        await it.applied(1)


async def test_another_model_is_not_warmed_for_while_paused(path: Path) -> None:
    async with running(path, entry("a")) as it:
        await it.applied(1)
        await ask(it, "pause")
        it.engine.load("other")
        await it.until(lambda: it.named("engine.model_changed") != [])
        await it.until(lambda: it.states() == {"a": "pending"})
        await ask(it, "resume")
        await it.until(lambda: it.states() == {"a": "warm"})


async def test_reload_answers_once_the_file_has_been_read(path: Path) -> None:
    async with running(path, entry("a")) as it:
        await it.applied(1)
        for generation in range(2, 6):
            it.save(entry(f"number {generation}"))
            assert (await ask(it, "reload"))["accepted"] == generation


async def test_reload_tells_what_is_wrong(path: Path) -> None:
    async with running(path, entry("a")) as it:
        await it.applied(1)
        it.path.write_text("[\n", encoding="utf-8")
        found = await ask(it, "reload")
        assert (found["seen"], found["accepted"]) == (2, 1)
        assert found["errors"][0]["line"] == 2


async def test_reload_of_a_file_that_did_not_change_is_no_news(path: Path) -> None:
    async with running(path, entry("a")) as it:
        await it.applied(1)
        assert [(await ask(it, "reload"))["seen"] for _ in range(3)] == [1, 1, 1]
        assert (
            it.named("prompts.unchanged")
            == [{"generation": 1, "sha256": it.daemon.statistics().document.sha256, "valid": True}] * 3
        )
        it.path.write_text("[[]]")
        assert [(await ask(it, "reload"))["seen"] for _ in range(2)] == [2, 2]
        (_, *_, told) = [event for event in it.events if event.name == "prompts.unchanged"]
        assert (told.level, told.fields["generation"], told.fields["valid"]) == ("warning", 1, False)
        assert len(it.named("prompts.accepted")) == 1


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("status", {"verbose": True}),
        ("rewarm", {"name": "a"}),
        ("rewarm", {"names": "a"}),
        ("rewarm", {"names": [1]}),
        ("rewarm", {"names": None}),
        ("pause", {"seconds": 1}),
        ("resume", {"x": 1}),
        ("reload", {"path": "/etc/passwd"}),
    ],
)
async def test_arguments_that_do_not_belong_there_are_refused(
    path: Path, command: str, arguments: dict[str, Any]
) -> None:
    async with running(path, entry("a")) as it:
        with pytest.raises(ControlError):
            await ask(it, command, **arguments)
