"""Looking at a daemon from another thread."""

from __future__ import annotations

import threading

import anyio.lowlevel
import anyio.to_thread
import pytest

from tests.patience import PATIENCE
from tests.web.stage import make_recent, make_statistics
from warmd.status import Statistics
from warmd.web import live
from warmd.web.live import Live, Snapshot, UnavailableError
from warmd.web.recent import Recent


async def test_everything_is_read_on_the_event_loop_s_thread() -> None:
    threads: list[int] = []

    def statistics() -> Statistics:
        threads.append(threading.get_ident())
        return make_statistics()

    recent = make_recent()
    found = await anyio.to_thread.run_sync(Live(statistics, recent).look)
    assert threads == [threading.get_ident()]
    assert (found.statistics, found.events) == (make_statistics(), recent.events())


def test_an_event_loop_that_has_ended_is_said() -> None:
    async def make() -> Live:
        return Live(make_statistics, Recent())

    looking = anyio.run(make)
    with pytest.raises(UnavailableError, match="the daemon does not answer"):
        looking.look()


async def test_an_event_loop_that_is_stuck_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PATIENCE", 0.05)
    looking, said = Live(make_statistics, Recent()), threading.Event()

    def look() -> None:
        try:
            looking.look()
        except UnavailableError:
            said.set()

    thread = threading.Thread(target=look)
    thread.start()
    # No other thread can get this one to do anything meanwhile.
    assert said.wait(PATIENCE)
    thread.join()
    await anyio.lowlevel.checkpoint()


async def test_what_goes_wrong_in_the_daemon_goes_wrong_for_who_asked() -> None:
    def statistics() -> Statistics:
        raise LookupError("a fault of ours")

    with pytest.raises(LookupError):
        await anyio.to_thread.run_sync(Live(statistics, Recent()).look)


async def test_many_at_once_get_an_answer_each() -> None:
    looking, found = Live(make_statistics, Recent()), list[Snapshot]()
    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(anyio.to_thread.run_sync, lambda: found.append(looking.look()))
    assert len(found) == 50
