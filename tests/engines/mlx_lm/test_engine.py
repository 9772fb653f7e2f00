"""The embedded engine as the daemon sees it, without a thread behind it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import mlx.core as mx
import mlx_lm
import pytest
from mlx_lm.models.cache import KVCache

from tests.architectures import build
from tests.engines.mlx_lm.keeping import Start, make_weights
from tests.engines.mlx_lm.warming import ids, make_provider
from tests.patience import PATIENCE
from tests.toys import make_model
from warmd.disk.errors import NotNowError
from warmd.disk.files import Files
from warmd.disk.tell import Tell
from warmd.disk.writer import WriterSettings
from warmd.engines.base import Prefix
from warmd.engines.mlx_lm.engine import MlxLmEngine
from warmd.engines.mlx_lm.guard import Guard
from warmd.engines.mlx_lm.keeper import Keeper
from warmd.engines.mlx_lm.room import EngineRoom
from warmd.engines.mlx_lm.store import WarmStore
from warmd.engines.pace import Pace
from warmd.memory.readings import Limit


async def test_a_model_that_goes_away_has_freed_what_was_about_to_be_dropped() -> None:
    room = EngineRoom(WarmStore(), Guard(Limit(None, 0)), Pace(256, 0.25))
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            engine = MlxLmEngine(room, None, asyncio.get_running_loop())
            tasks.start_soon(engine.drop, ["key"])
            await anyio.wait_all_tasks_blocked()
            # On another thread, as the engine does.
            await anyio.to_thread.run_sync(room.model_gone)
    assert dict(engine.held()) == {}


def test_other_weights_in_the_same_place_are_another_identity(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model")

    def fingerprint() -> str:
        room = EngineRoom(WarmStore(), Guard(Limit(None, 0)), Pace(256, 0.25))
        model, tokenizer, *_ = mlx_lm.load(str(folder))
        provider = make_provider(model, chat_template_args={})
        provider.model_key, provider.tokenizer, provider.processor = (
            (str(folder), None, None),
            tokenizer,
            None,
        )
        room.model_loaded(provider, {"model": folder})
        assert room.loaded is not None
        return room.loaded.identity.fingerprint

    before = fingerprint()
    assert before == fingerprint() != ""
    weights: Any = mx.load(str(folder / "model.safetensors"))
    mx.eval(weights)
    name = next(iter(weights))
    mx.save_safetensors(str(folder / "model.safetensors"), {**weights, name: weights[name] + 1})
    assert before != fingerprint()


def test_the_writer_is_told_of_what_may_happen_at_any_time_by_one_name(tmp_path: Path) -> None:
    keeper = Keeper(Files(tmp_path), WriterSettings(), Tell(lambda event: None))
    room = EngineRoom(WarmStore(), Guard(Limit(None, 0)), Pace(256, 0.25), keeper)
    room.thread_ended(None)
    with pytest.raises(NotNowError):
        room.next_piece()


async def test_what_is_dropped_is_given_back_to_the_system() -> None:
    room = EngineRoom(WarmStore(), Guard(Limit(None, 0)), Pace(256, 0.25))
    prefix, cache = Prefix(tuple(range(1000))), KVCache()
    cache.update_and_fetch(mx.ones((1, 4, 1000, 64)), mx.ones((1, 4, 1000, 64)))
    room.store.hold(prefix, [cache], {})
    before = mx.get_active_memory()
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(MlxLmEngine(room, None, asyncio.get_running_loop()).drop, [prefix.key])
            await anyio.wait_all_tasks_blocked()
            assert room.desk.step()
    assert before - mx.get_active_memory() > 2 * 1000 * 4 * 64 * 4 * 0.9
    assert mx.get_cache_memory() == 0


async def test_files_of_what_is_to_be_warmed_anew_are_gone_before_that(tmp_path: Path) -> None:
    """A warming under way holds the writer up, and a process that is killed then starts on what is there."""
    tokens = ids(60)
    provider = make_provider(build("llama"))
    start = Start(tmp_path / "kv", make_weights(tmp_path / "model"), provider)
    start.warm(tokens)
    start.write()
    room = EngineRoom(start.store, Guard(Limit(None, 0)), Pace(256, 0.25), start.keeper)
    asked, gate = threading.Event(), threading.Event()

    def ask() -> None:
        asked.set()
        gate.wait(PATIENCE)

    start.keeper.start(ask)
    engine = MlxLmEngine(room, provider, asyncio.get_running_loop())
    prefix = Prefix(tuple(tokens))
    engine.declare([prefix])
    assert await anyio.to_thread.run_sync(asked.wait, PATIENCE)
    assert list((tmp_path / "kv").glob("*.safetensors")) != []
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.drop, [prefix.key])
            await anyio.wait_all_tasks_blocked()
            while room.desk.step():
                pass
    assert list((tmp_path / "kv").glob("*.safetensors")) == []
    gate.set()
