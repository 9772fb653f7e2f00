"""Events that are lost, refused, or come from neighbours; and the end of it all."""

# ruff: noqa: ASYNC240 - a test is the program that writes, and a local disk does not block it

from __future__ import annotations

import errno
import logging
import time
from pathlib import Path

import anyio
import pytest
import watchfiles

from tests.patience import PATIENCE, eventually
from tests.watch.follower import EVENTS_ONLY, following
from tests.watch.sources import Deaf, Refusing, Silent
from warmd.settings import WatchSettings
from warmd.watch import EventSource, Look, Watcher

TICKING = WatchSettings(settle=0.1, rehash=0.2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "w.json").write_text("0")
    return tmp_path / "w.json"


async def test_lost_events_are_healed_by_the_tick_and_the_watch_is_renewed(path: Path) -> None:
    source = Silent()
    async with following(path, settings=TICKING, events=source) as follower:
        assert len(source.watched) == 1
        # A change that comes just when the watcher looks anyway says nothing about its events.
        for content in map(str, range(1, 20)):
            path.write_text(content)
            await follower.saw(content)
            if len(source.watched) > 1:
                break
        assert len(source.watched) > 1
        assert follower.degraded == []


async def test_when_it_looked_and_when_it_heard_is_told(path: Path) -> None:
    began = time.time()
    async with following(path) as follower:
        await eventually(lambda: follower.watcher.statistics().last_check_at is not None)
        path.write_text("1")
        await follower.saw("1")
        found = follower.watcher.statistics()
        assert found.last_event_at is not None
        assert found.last_check_at is not None
        assert began <= found.last_event_at <= found.last_check_at
        assert found.missed_event_at is None


async def test_a_change_that_no_event_has_told_of_in_time_is_noted(path: Path) -> None:
    async with following(path, settings=WatchSettings(settle=0.1, rehash=1.5), events=Silent()) as follower:
        # One that comes just before the tick may yet be told of, and one at the tick was seen by itself.
        for content in map(str, range(1, 20)):
            path.write_text(content)
            await follower.saw(content)
            if follower.watcher.statistics().missed_event_at is not None:
                break
        found = follower.watcher.statistics()
        assert found.last_event_at is None
        assert found.missed_event_at is not None
        assert found.last_check_at is not None
        assert found.missed_event_at <= found.last_check_at


async def test_an_unchanged_file_is_rechecked_once_at_a_tick(path: Path) -> None:
    """Two writes within the precision of the file system's times look the same."""
    async with following(path, settings=TICKING, events=Silent()) as follower:
        await eventually(lambda: follower.looks == [Look(is_recheck=True)])
        path.write_text("1")
        await eventually(lambda: follower.looks[1:] == [Look(), Look(is_recheck=True)])
        assert follower.contents == [("0",), ("0",), ("1",), ("1",)]


async def test_polling_by_choice_needs_no_events(path: Path) -> None:
    source = Silent()
    settings = WatchSettings(settle=0.1, rehash=600.0, poll=True)
    async with following(path, settings=settings, events=source) as follower:
        for content in ("1", "2"):
            path.write_text(content)
            await follower.saw(content)
        assert follower.watcher.statistics().is_polling
        assert source.watched == []


REFUSALS = [
    FileNotFoundError('OS file watch limit reached. about ["/x"]'),
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EMFILE, "Too many open files"),
    PermissionError(errno.EACCES, "Permission denied"),
    RuntimeError("anything else"),
]


@pytest.mark.parametrize("error", REFUSALS, ids=repr)
async def test_a_refused_watch_is_reported_once_and_polled_meanwhile(path: Path, error: Exception) -> None:
    source = Refusing([error] * 1000)
    async with following(path, events=source) as follower:
        for content in ("1", "2"):
            path.write_text(content)
            await follower.saw(content)
        assert follower.watcher.statistics().is_polling
        assert follower.degraded == [f"{type(error).__name__}: {error}"]
        # Tried again ever more rarely.
        assert follower.watcher.statistics().armings < 10


async def test_events_are_used_again_as_soon_as_they_can_be_had(path: Path) -> None:
    async with following(path, events=Refusing([OSError(errno.ENOSPC, "full")])) as follower:
        await eventually(lambda: follower.degraded != [])
        await eventually(lambda: not follower.watcher.statistics().is_polling)
        # The first may still be found by the last poll.
        for content in ("1", "2"):
            path.write_text(content)
            await follower.saw(content)
        assert not follower.watcher.statistics().is_polling


async def test_neighbours_in_the_directory_cause_nothing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Our own log and state may be kept beside the prompts; a reload logs, so this would never end."""
    caplog.set_level(logging.NOTSET)
    log = path.with_name("warmd.log")
    async with following(path) as follower:
        for number in range(3):
            with log.open("a") as file:
                file.write("entry.warmed\n")
            log.with_name(f"w.json.{number}.tmp").write_text("")
            await follower.heard(number + 1)
        path.write_text("1")
        await follower.saw("1")
        assert follower.contents == [("0",), ("1",)]
        assert follower.looks == [Look()]
        assert follower.watcher.statistics().armings == 1
    assert [record for record in caplog.records if record.name.startswith("watchfiles")] == []


@pytest.mark.parametrize("events", [watchfiles.awatch, Silent(), Deaf(), Refusing([OSError()] * 1000)])
async def test_stopping_is_prompt(path: Path, events: EventSource) -> None:
    watcher = Watcher(EVENTS_ONLY, events=events)
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            await tasks.start(watcher.run)
            watcher.follow([path], ())
            await eventually(lambda: watcher.statistics().armings > 0)
            tasks.cancel_scope.cancel()


async def test_nothing_to_follow_is_nothing_to_watch() -> None:
    source = Silent()
    async with anyio.create_task_group() as tasks:
        watcher = Watcher(EVENTS_ONLY, events=source)
        await tasks.start(watcher.run)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert source.watched == []
