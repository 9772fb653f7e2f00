"""From the settings to what keeps state on disk."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import platformdirs

from warmd.disk.place import store_folder
from warmd.engines.mlx_lm.disk_setup import EmitSoon, open_keeper
from warmd.events import Event, make_event
from warmd.settings import StoreSettings


def event(number: int) -> Event:
    return make_event("store.failed", operation="write", reason=str(number))


def test_nothing_is_opened_where_nothing_is_to_be_written() -> None:
    assert open_keeper(StoreSettings(enabled=False), lambda event: None) is None


def test_opening_touches_nothing(tmp_path: Path) -> None:
    keeper = open_keeper(StoreSettings(path=str(tmp_path / "kv")), lambda event: None)
    assert keeper is not None
    assert (keeper.status().files, keeper.status().path) == (0, str(tmp_path / "kv"))
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_the_system_s_or_as_set(tmp_path: Path) -> None:
    assert store_folder(StoreSettings()) == platformdirs.user_cache_path("warmd") / "kv"
    assert store_folder(StoreSettings(path="~/x")) == Path.home() / "x"


def test_events_of_any_thread_come_on_the_loop_in_order_and_early_ones_wait() -> None:
    emit_soon, seen, threads = EmitSoon(), list[Event](), set[int]()

    def emit(event: Event) -> None:
        seen.append(event)
        threads.add(threading.get_ident())

    async def run() -> None:
        emit_soon.follow(asyncio.get_running_loop(), emit)
        thread = threading.Thread(target=emit_soon, args=(event(2),))
        thread.start()
        thread.join()
        await asyncio.sleep(0)

    emit_soon(event(1))
    asyncio.run(run())
    assert (seen, threads) == ([event(1), event(2)], {threading.get_ident()})
    # The loop has ended: there is nobody left to tell.
    emit_soon(event(3))
    assert len(seen) == 2
