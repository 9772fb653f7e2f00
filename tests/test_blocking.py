"""File systems that do not answer. No real one can be told to, so these are functions that wait."""

# ruff: noqa: ASYNC240 - a test is the program that writes, and a local disk does not block it

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.patience import PATIENCE, eventually
from warmd.blocking import Blocking
from warmd.events import Event
from warmd.prompts import Document, load_document
from warmd.reload import Reloader
from warmd.settings import Settings, WatchSettings


class Stuck:
    """Loads documents, but for a time in which it does not return."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.calls = 0

    def __call__(self, path: Path, **more: Any) -> Document:
        """Load, once there is an answer."""
        self.calls += 1
        self.answer.wait(PATIENCE)
        return load_document(path, **more)


class Following:
    """A reloader and what it says."""

    def __init__(self, path: Path, load: Stuck) -> None:
        settings = Settings(watch=WatchSettings(settle=0.05, rehash=0.1, timeout=1.5))
        self.events: list[Event] = []
        self.reloader = Reloader(path, settings, emit=self.events.append, on_change=lambda: None, load=load)

    async def until(self, *names: str) -> None:
        await eventually(lambda: [event.name for event in self.events] == list(names))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "prompts.json"
    found.write_text(json.dumps([[{"role": "system", "content": "x"}]]))
    return found


async def test_what_is_stuck_is_given_up_and_holds_one_thread_however_often_it_is_tried() -> None:
    answer = threading.Event()
    blocking = Blocking(0.02)
    before = threading.active_count()
    for _ in range(5):
        with pytest.raises(TimeoutError):
            await blocking.run(answer.wait, PATIENCE)
    assert threading.active_count() <= before + 1
    answer.set()
    with anyio.fail_after(PATIENCE):
        while True:
            try:
                assert await blocking.run(lambda: "done") == "done"
                return
            except TimeoutError:
                continue


async def test_what_fails_raises_what_it_raised() -> None:
    def fail() -> None:
        raise LookupError("x")

    with pytest.raises(LookupError):
        await Blocking(5).run(fail)


async def test_a_read_that_blocks_is_reported_once_and_comes_when_it_can(path: Path) -> None:
    load = Stuck()
    it = Following(path, load)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(it.reloader.run)
        await it.until("prompts.rejected")
        errors = it.events[0].fields["errors"]
        assert [error["message"] for error in errors] == ["the file system gives no answer within 1.5 s"]
        await anyio.sleep(3.5)
        assert load.calls == 1
        load.answer.set()
        await it.until("prompts.rejected", "prompts.accepted")
        tasks.cancel_scope.cancel()


async def test_the_last_good_document_stays_and_a_stop_does_not_wait(path: Path) -> None:
    load = Stuck()
    load.answer.set()
    it = Following(path, load)
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(it.reloader.run)
            await it.until("prompts.accepted")
            load.answer.clear()
            path.write_text("[]")
            await it.until("prompts.accepted", "prompts.rejected")
            document = it.reloader.document
            assert document is not None
            assert [entry.name for entry in document.entries] == ["#0"]
            # Whoever asks gets an answer as well.
            assert (await it.reloader.look()).errors != ()
            tasks.cancel_scope.cancel()
    load.answer.set()
