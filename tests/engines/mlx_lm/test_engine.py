"""The embedded engine as the daemon sees it, without a thread behind it."""

from __future__ import annotations

import asyncio

import anyio
import anyio.to_thread
import mlx.core as mx
from mlx_lm.models.cache import KVCache

from warmd.engines.base import Prefix
from warmd.engines.mlx_lm.engine import MlxLmEngine
from warmd.engines.mlx_lm.guard import Guard
from warmd.engines.mlx_lm.room import EngineRoom
from warmd.engines.mlx_lm.store import WarmStore
from warmd.engines.pace import Pace
from warmd.memory.readings import Limit


async def test_a_model_that_goes_away_has_freed_what_was_about_to_be_dropped() -> None:
    room = EngineRoom(WarmStore(), Guard(Limit(None, 0)), Pace(256, 0.25))
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            engine = MlxLmEngine(room, None, asyncio.get_running_loop())
            tasks.start_soon(engine.drop, ["key"])
            await anyio.wait_all_tasks_blocked()
            # On another thread, as the engine does.
            await anyio.to_thread.run_sync(room.model_gone)
    assert dict(engine.held()) == {}


async def test_what_is_dropped_is_given_back_to_the_system() -> None:
    room = EngineRoom(WarmStore(), Guard(Limit(None, 0)), Pace(256, 0.25))
    prefix, cache = Prefix(tuple(range(1000))), KVCache()
    cache.update_and_fetch(mx.ones((1, 4, 1000, 64)), mx.ones((1, 4, 1000, 64)))
    room.store.hold(prefix, [cache], {})
    before = mx.get_active_memory()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(MlxLmEngine(room, None, asyncio.get_running_loop()).drop, [prefix.key])
            await anyio.wait_all_tasks_blocked()
            assert room.desk.step()
    assert before - mx.get_active_memory() > 2 * 1000 * 4 * 64 * 4 * 0.9
    assert mx.get_cache_memory() == 0
