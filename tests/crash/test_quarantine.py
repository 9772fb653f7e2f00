"""Marks on disk, and what a daemon makes of those that it finds."""

from __future__ import annotations

import errno
import json
import os
import stat
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.test_daemon import Running, entry
from warmd.crash import quarantine as module
from warmd.crash.quarantine import FILE_NAME, Quarantine, read_suspects
from warmd.engines.base import EngineDiedError, Identity, NoRoomError
from warmd.events import Event
from warmd.files.state import write_json
from warmd.testing import FakeEngine

KEY = "a" * 64
MODEL = Identity("m", 1)


@asynccontextmanager
async def running(
    folder: Path, *entries: Any, engine: FakeEngine | None = None, limit: str = "auto"
) -> AsyncIterator[Running]:
    """A daemon whose marks are in a folder."""
    found = Running(folder / "prompts.json", engine or FakeEngine(), 1, folder=folder, limit=limit)
    found.save(*entries)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(found.daemon.run)
        yield found
        tasks.cancel_scope.cancel()


async def end_abruptly(folder: Path, name: str, *entries: Any, times: int = 1) -> None:
    """As often, let a daemon have begun to warm an entry, and leave what a killed process leaves."""
    for _ in range(times):
        engine = FakeEngine()
        engine.hold(name)
        async with running(folder, *entries, engine=engine) as it:
            await it.until(lambda it=it: it.engine.running == 1)  # type: ignore[misc]
            left = (folder / FILE_NAME).read_bytes()
        (folder / FILE_NAME).write_bytes(left)


def marks(folder: Path) -> list[tuple[str, ...]]:
    """The entries of what is marked."""
    return [suspect.entries for suspect in read_suspects(folder).warming]


async def test_the_mark_is_on_disk_before_the_first_chunk(tmp_path: Path) -> None:
    class Looking(FakeEngine):
        async def warm(self, *args: Any) -> Any:
            found.append(marks(tmp_path))
            return await super().warm(*args)

    found: list[Any] = []
    async with running(tmp_path, entry("a"), entry("b"), engine=Looking()) as it:
        await it.applied(1)
    assert found == [[("a",)], [("b",)]]
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600


async def test_no_mark_is_left_by_what_ends_as_it_should(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.fail_warm("failing", RuntimeError("secret"))
    async with running(tmp_path, entry("fine"), entry("failing"), engine=engine) as it:
        await it.until(lambda: it.states() == {"fine": "warm", "failing": "failed"})
        assert marks(tmp_path) == []


@pytest.mark.parametrize("error", [EngineDiedError("it lost another rank"), RuntimeError("in a step")])
async def test_an_engine_that_dies_while_warming_has_the_mark_put_back(
    tmp_path: Path, error: Exception
) -> None:
    quarantine = Quarantine(tmp_path)
    async with quarantine.marked(KEY, MODEL, ["done"], 5):
        pass
    with pytest.raises(type(error)):
        async with quarantine.marked(KEY, MODEL, ["a"], 5):
            raise error
    assert marks(tmp_path) == []
    await quarantine.engine_died()
    assert marks(tmp_path) == [("a",)]


async def leave(it: Running) -> None:
    """Nothing: the daemon is stopped in the midst of it."""


async def pause(it: Running) -> None:
    it.daemon.pause()
    await it.until(lambda: it.engine.running == 0)


async def unload(it: Running) -> None:
    it.engine.load(None)
    await it.until(lambda: it.engine.running == 0)


async def edit(it: Running) -> None:
    it.save(entry("other"))
    await it.applied(2)


async def test_what_a_stop_broke_off_is_marked_again_when_the_engine_turns_out_to_have_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quarantine = Quarantine(tmp_path)
    with anyio.CancelScope() as stop:
        async with quarantine.marked(KEY, MODEL, ["a"], 5):
            stop.cancel()
            await anyio.sleep_forever()
    assert marks(tmp_path) == []
    await quarantine.engine_died()
    assert marks(tmp_path) == [("a",)]
    # Long ago it is no matter.
    monkeypatch.setattr(module, "JUST_NOW", -1.0)
    assert quarantine.broken_off == ()


@pytest.mark.parametrize("change", [pause, unload, edit])
async def test_what_was_broken_off_for_a_reason_of_its_own_is_no_matter_when_the_engine_dies(
    tmp_path: Path, change: Callable[[Running], Any]
) -> None:
    engine = FakeEngine()
    engine.hold("held")
    async with running(tmp_path, entry("held"), engine=engine) as it:
        await it.until(lambda: it.engine.running == 1)
        await change(it)
        await it.until(lambda: it.quarantine.broken_off == ())
        await it.quarantine.engine_died()
        assert marks(tmp_path) == []


@pytest.mark.parametrize("is_full", [True, False])
async def test_what_failed_is_no_matter_when_the_engine_dies(tmp_path: Path, is_full: bool) -> None:
    engine = FakeEngine()
    engine.fail_warm("a", NoRoomError(5, 0) if is_full else OSError("no"), times=1)
    async with running(tmp_path, entry("a"), engine=engine) as it:
        await it.until(lambda: it.states() in ({"a": "failed"}, {"a": "deferred"}))
        await it.quarantine.engine_died()
        assert marks(tmp_path) == []


async def break_off(quarantine: Quarantine) -> None:
    with anyio.CancelScope() as stop:
        async with quarantine.marked(KEY, MODEL, ["a"], 5):
            stop.cancel()
            await anyio.sleep_forever()
    assert [suspect.entries for suspect in quarantine.broken_off] == [("a",)]


async def test_what_was_warmed_or_forgiven_since_is_no_matter_when_the_engine_dies(tmp_path: Path) -> None:
    quarantine = Quarantine(tmp_path)
    await break_off(quarantine)
    async with quarantine.marked(KEY, MODEL, ["a"], 5):
        pass
    await quarantine.engine_died()
    assert marks(tmp_path) == []
    await break_off(quarantine)
    quarantine.forgive([KEY], MODEL)
    await quarantine.engine_died()
    assert marks(tmp_path) == []


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_disk_that_is_full_by_then_keeps_no_mark_and_what_was_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    await end_abruptly(tmp_path, "b", entry("b"))
    is_full = False

    def write_to_small_disk(path: Path, value: Any) -> None:
        # The old file is there until the new one is, and there is room for one of them.
        if is_full and path.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_json(path, value)

    monkeypatch.setattr(module, "write_json", write_to_small_disk)
    events: list[Event] = []
    quarantine = Quarantine(tmp_path, emit=events.append)
    with anyio.CancelScope() as stop:
        async with quarantine.marked(KEY, MODEL, ["a"], 5):
            is_full = True
            if not is_done:
                stop.cancel()
                await anyio.sleep_forever()
    assert marks(tmp_path) == []
    assert [suspect.entries for suspect in read_suspects(tmp_path).ended] == [("b",)]
    assert [event.name for event in events] == ["entry.suspected"]
    # Another mark is not worth what is known: it is told that it cannot be written.
    async with quarantine.marked(KEY, MODEL, ["a"], 5):
        assert marks(tmp_path) == []
    assert [suspect.entries for suspect in read_suspects(tmp_path).ended] == [("b",)]
    assert [event.name for event in events] == ["entry.suspected", "state.failed"]


@pytest.mark.parametrize("change", [leave, pause, unload, edit])
async def test_no_mark_is_left_by_what_is_cut_short(tmp_path: Path, change: Callable[[Running], Any]) -> None:
    engine = FakeEngine()
    engine.hold("held")
    async with running(tmp_path, entry("held"), engine=engine) as it:
        await it.until(lambda: it.engine.running == 1)
        assert marks(tmp_path) == [("held",)]
        await change(it)
    assert marks(tmp_path) == []


async def test_what_is_cut_short_while_its_mark_is_written_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write, is_writing = threading.Event(), threading.Event()

    def write_slowly(path: Path, value: Any) -> None:
        is_writing.set()
        assert may_write.wait(10)
        write_json(path, value)

    monkeypatch.setattr(module, "write_json", write_slowly)
    quarantine = Quarantine(tmp_path, "auto")

    async def warm() -> None:
        async with quarantine.marked(KEY, MODEL, ["a"], 5):
            await anyio.sleep_forever()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(warm)
            await anyio.to_thread.run_sync(is_writing.wait)
            threading.Timer(0.1, may_write.set).start()
            tasks.cancel_scope.cancel()
    assert json.loads((tmp_path / FILE_NAME).read_text())["warming"] == []


async def test_after_one_abrupt_end_it_is_tried_again_and_success_clears_it(tmp_path: Path) -> None:
    await end_abruptly(tmp_path, "a", entry("a"))
    async with running(tmp_path, entry("a")) as it:
        await it.applied(1)
        assert it.states() == {"a": "warm"}
        tokens = it.status("a").tokens
        assert it.named("entry.suspected") == [{"entry": "a", "tokens": tokens, "ends": 1}]
    assert read_suspects(tmp_path).ended == ()


@pytest.mark.promise(9)
async def test_after_two_abrupt_ends_it_is_quarantined_and_the_others_are_warmed(tmp_path: Path) -> None:
    entries = [entry("a"), entry("b")]
    await end_abruptly(tmp_path, "a", *entries, times=2)
    async with running(tmp_path, *entries) as it:
        await it.applied(1)
        assert it.states() == {"a": "quarantined", "b": "warm"}
        reason = (
            "the process ended abruptly 2 times while warming it: edit it, change the model or "
            "[memory] limit, or run `warmd rewarm NAME`"
        )
        assert it.status("a").reason == reason
        assert it.named("entry.failed") == [
            {"entry": "a", "state": "quarantined", "reason": reason, "retry_in_s": None}
        ]
        assert it.engine.names_of("warm") == ["b"]
        # Nothing is told of it that would only be so if it were warmed.
        (plan,) = it.named("plan.made")
        assert (plan["warm"], plan["defer"], plan["new_tokens"]) == (1, 1, it.status("b").tokens)
        assert [planned["entry"] for planned in it.named("entry.planned")] == ["b"]


async def test_an_edit_lifts_it(tmp_path: Path) -> None:
    await end_abruptly(tmp_path, "a", entry("a"), times=2)
    async with running(tmp_path, entry("a")) as it:
        await it.applied(1)
        it.save(entry("a", "I am another"))
        await it.applied(2)
        assert it.states() == {"a": "warm"}


async def test_another_model_lifts_it(tmp_path: Path) -> None:
    await end_abruptly(tmp_path, "a", entry("a"), times=2)
    async with running(tmp_path, entry("a")) as it:
        await it.applied(1)
        it.engine.load("other")
        await it.until(lambda: it.states() == {"a": "warm"})
        it.engine.load("fake")
        await it.until(lambda: it.states() == {"a": "quarantined"})


async def test_other_files_of_the_model_lift_it(tmp_path: Path) -> None:
    await end_abruptly(tmp_path, "a", entry("a"), times=2)
    async with running(tmp_path, entry("a")) as it:
        await it.applied(1)
        it.engine.load("fake", fingerprint="other")
        await it.until(lambda: it.states() == {"a": "warm"})
        it.engine.load("fake")
        await it.until(lambda: it.states() == {"a": "quarantined"})


async def test_another_limit_lifts_it(tmp_path: Path) -> None:
    await end_abruptly(tmp_path, "a", entry("a"), times=2)
    async with running(tmp_path, entry("a"), limit="12000000000") as it:
        await it.applied(1)
        assert it.states() == {"a": "warm"}


async def test_a_person_lifts_it_and_that_lasts(tmp_path: Path) -> None:
    await end_abruptly(tmp_path, "a", entry("a"), times=2)
    async with running(tmp_path, entry("a")) as it:
        await it.applied(1)
        it.daemon.pause()
        it.daemon.rewarm(["a"])
        await it.until(lambda: read_suspects(tmp_path).ended == ())
        it.daemon.resume()
        await it.until(lambda: it.states() == {"a": "warm"})


async def test_a_cosmetic_change_does_not_lift_it(tmp_path: Path) -> None:
    await end_abruptly(tmp_path, "a", entry("a"), times=2)
    async with running(tmp_path, entry("a")) as it:
        await it.applied(1)
        it.save(entry("b"), entry("a", priority=3))
        await it.applied(2)
        assert it.states() == {"b": "warm", "a": "quarantined"}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"warming": 3, "ended": []}', b"\xff", b"[" * 99999])
def test_a_broken_file_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    events: list[Event] = []
    assert Quarantine(tmp_path, "auto", events.append).reason(KEY, MODEL) is None
    assert events == []


async def test_where_it_cannot_be_written_there_is_one_warning_and_warming_goes_on(tmp_path: Path) -> None:
    # Not by its mode: the superuser may write anywhere.
    folder = tmp_path / "file"
    folder.write_text("")
    events: list[Event] = []
    quarantine = Quarantine(folder, "auto", events.append)
    for _ in range(3):
        async with quarantine.marked(KEY, MODEL, ["a"], 3):
            pass
    reason = f"{folder}: {os.strerror(errno.ENOTDIR)}"
    assert [(event.name, event.level, dict(event.fields)) for event in events] == [
        ("state.failed", "warning", {"reason": reason})
    ]


async def test_a_disk_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = threading.Event()

    def write_late(path: Path, value: Any) -> None:
        answer.wait(20)
        write_json(path, value)

    # No disk can be told to hang.
    monkeypatch.setattr(module, "write_json", write_late)
    monkeypatch.setattr(module, "MARK_SECONDS", 0.05)
    monkeypatch.setattr(module, "UNMARK_SECONDS", 0.05)
    events: list[Event] = []
    quarantine = Quarantine(tmp_path, "auto", events.append)
    for _ in range(3):
        async with quarantine.marked(KEY, MODEL, ["a"], 3):
            assert not (tmp_path / FILE_NAME).exists()
    answer.set()
    with anyio.fail_after(10):
        # What it writes at last is not what was true when it was asked.
        while not (tmp_path / FILE_NAME).exists() or marks(tmp_path):  # noqa: ASYNC110
            await anyio.sleep(0.01)
    assert [event.fields["reason"] for event in events] == [f"{tmp_path}: no answer within 0.05 s"]


def test_the_file_holds_names_and_hashes_and_no_text(tmp_path: Path) -> None:
    anyio.run(end_abruptly, tmp_path, "a", entry("a", "zanzibar-9c1e"))
    found = json.loads((tmp_path / FILE_NAME).read_text())
    assert found["warming"][0]["entries"] == ["a"]
    assert "zanzibar" not in json.dumps(found)
