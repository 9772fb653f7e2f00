"""The memory guard in front of real prefills, with a scripted meter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import pytest
from mlx_lm.models.cache import KVCache, make_prompt_cache

from tests.architectures import build
from tests.engines.mlx_lm.warming import answer, assert_same_answer, ids, make_provider
from tests.toys import ARCHITECTURES
from warmd.engines.base import NoRoomError, Prefix, Warmed
from warmd.engines.mlx_lm import layers
from warmd.engines.mlx_lm.guard import PROBE_TOKENS, Guard, MlxMeter
from warmd.engines.mlx_lm.measure import UncopyableError, UnkeepableError, measure, quantising, trace
from warmd.engines.mlx_lm.prefill import Prefill
from warmd.engines.mlx_lm.store import Quantising, WarmStore
from warmd.memory.cost import Cost
from warmd.memory.fake import FakeMeter
from warmd.memory.readings import Limit

TAIL = [7, 100, 21, 5]
GB = 10**9


@pytest.fixture(scope="module", params=ARCHITECTURES)
def model(request: pytest.FixtureRequest, models: dict[str, Path]) -> Any:
    return mlx_lm.load(str(models[request.param]))[0]


@pytest.fixture(scope="module")
def llama(models: dict[str, Path]) -> Any:
    return mlx_lm.load(str(models["llama"]))[0]


class Prefiller:
    """Prefills under a guard, and notes where the chunks end."""

    def __init__(self, model: Any, meter: FakeMeter | None = None, limit: int = 4 * GB) -> None:
        self.meter = meter or FakeMeter(active=2 * GB, footprint=2 * GB)
        self.guard = Guard(Limit(limit, 0), self.meter)
        self.provider = make_provider(model)
        self.guard.model_loaded(measure(trace(model), 256, self.provider.cli_args))
        self.store = WarmStore()
        self.ends: list[int] = []

    def begin(self, tokens: list[int], chunk: int = 64) -> Prefill:
        prefix = Prefix(tuple(tokens))
        self.store.declare([prefix])
        return Prefill(prefix, self.store, self.provider, chunk, self.ends.append, self.guard)

    def finish(self, prefill: Prefill) -> Warmed:
        while (warmed := prefill.step()) is None:
            pass
        return warmed


def test_the_cost_is_known_before_anything_is_computed(model: Any) -> None:
    before = mx.get_active_memory()
    cost = measure(trace(model), 64, make_provider(model).cli_args)
    assert mx.get_active_memory() - before < 10_000
    store, tokens = WarmStore(), ids(300)
    prefill = Prefill(Prefix(tuple(tokens)), store, make_provider(model), 64, lambda done: None)
    while prefill.step() is None:
        pass
    assert cost.kept(300, 300) == store.warm_bytes
    assert cost.is_cuttable == (cost.snapshot(300) == 0)


def test_the_cost_of_a_per_token_model_is_exact(llama: Any) -> None:
    cost = measure(trace(llama), 64, make_provider(llama).cli_args)
    # 2 layers, keys and values, 1 head of 32 float32.
    assert (cost.row_bytes, cost.snapshot(1000), cost.largest_share) == (2 * 2 * 32 * 4, 0, 0.5)


def test_quantised_rows_cost_less(llama: Any) -> None:
    args = make_provider(llama, kv_bits=8, prefill_step_size=64, quantized_kv_start=100).cli_args
    cost = measure(trace(llama), 64, args)
    assert (quantising(args), cost.quantised_from) == (Quantising(64, 100), 128)
    # A byte a number, and a float32 scale and bias for each group of 32.
    assert cost.quantised_row_bytes == 2 * 2 * (32 + 8)
    assert cost.kept(127, 127) == 127 * 2 * 2 * 32 * 4
    assert cost.kept(128, 128) == 128 * 2 * 2 * 40


class Stubborn(KVCache):  # type: ignore[misc]
    """A cache that cannot be copied."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("cannot be copied")


def test_a_cache_class_that_cannot_be_copied_is_named() -> None:
    def run(tokens: int) -> list[Any]:
        part = Stubborn()
        part.update_and_fetch(mx.zeros((1, 1, tokens, 8)), mx.zeros((1, 1, tokens, 8)))
        return [part]

    with pytest.raises(UncopyableError, match=r"test_guard\.Stubborn cannot be copied \(TypeError\)"):
        measure(run, 64, make_provider(None).cli_args)


def test_the_first_chunk_is_a_probe_and_then_chunks_are_whole(llama: Any) -> None:
    it = Prefiller(llama)
    warmed = it.finish(it.begin(ids(200)))
    assert warmed.new_tokens == 200
    assert it.ends == [PROBE_TOKENS, PROBE_TOKENS + 64, PROBE_TOKENS + 128, 200]
    # Before every chunk and before the first of all.
    assert it.meter.reads == 5
    it.ends.clear()
    it.finish(it.begin(ids(100, seed=5)))
    assert it.ends == [64, 100]


def test_chunks_shrink_when_there_is_little_room_and_the_answer_stays(llama: Any) -> None:
    it, tokens = Prefiller(llama), ids(200)
    it.finish(it.begin(ids(40, seed=9)))
    it.ends.clear()
    cost = it.guard.cost
    assert cost is not None
    prefill = it.begin(tokens)
    prefill.step()
    # Just what the growth of the cache takes, and a part of what a whole chunk would take besides.
    for free in range(10_000_000, 0, -10_000):
        it.meter.active = it.meter.footprint = 4 * GB - free
        try:
            size = it.guard.chunk(64, 64)
        except NoRoomError:
            pytest.fail("from whole chunks to none at once")
        if size < 64:
            break
    it.finish(prefill)
    assert it.ends[1] - it.ends[0] == size
    found = it.store.match(tokens + TAIL)
    assert found is not None
    cold = answer(llama, tokens + TAIL, make_prompt_cache(llama))
    assert_same_answer(cold, answer(llama, TAIL, found.copy(len(TAIL))))


def test_what_does_not_fit_is_refused_before_anything_is_computed(llama: Any) -> None:
    it = Prefiller(llama, limit=2 * GB + 100_000)
    with pytest.raises(NoRoomError) as caught:
        it.begin(ids(1000)).step()
    assert it.ends == []
    cost = it.guard.cost
    assert cost is not None
    assert (caught.value.needed, caught.value.available) == (cost.peak(1000), 100_000)


@pytest.mark.promise(4)
def test_a_limit_that_falls_is_obeyed_within_a_chunk_and_nothing_done_is_lost(model: Any) -> None:
    it, tokens = Prefiller(model), ids(200)
    prefill = it.begin(tokens, chunk=32)
    for _ in range(3):
        prefill.step()
    it.guard.limit = Limit(1 * GB, 0)
    with pytest.raises(NoRoomError):
        prefill.step()
    assert it.ends == [32, 64, 96]
    assert (dict(it.store.held), it.store.warm_bytes > 0) == ({}, True)
    it.guard.limit = Limit(4 * GB, 0)
    warmed = it.finish(it.begin(tokens))
    assert (warmed.reused_tokens, warmed.new_tokens) == (96, 104)
    found = it.store.match(tokens + TAIL)
    assert found is not None
    assert found.length == 200
    cold = answer(model, tokens + TAIL, make_prompt_cache(model))
    assert_same_answer(cold, answer(model, TAIL, found.copy(len(TAIL))))


def test_what_is_not_wanted_any_more_is_not_kept_when_it_stops(model: Any) -> None:
    it = Prefiller(model)
    prefill = it.begin(ids(200), chunk=32)
    for _ in range(3):
        prefill.step()
    it.store.declare([])
    prefill.abandon()
    assert it.store.warm_bytes == 0


@pytest.mark.parametrize("pressure", [2, 4])
def test_pressure_stops_a_warming(llama: Any, pressure: int) -> None:
    it = Prefiller(llama)
    prefill = it.begin(ids(200))
    prefill.step()
    it.meter.pressure = pressure
    with pytest.raises(NoRoomError, match="the system is short of memory"):
        prefill.step()


def test_a_reading_that_fails_stops_a_warming(llama: Any) -> None:
    it = Prefiller(llama)
    prefill = it.begin(ids(200))
    prefill.step()
    it.meter.fail("gone")
    with pytest.raises(NoRoomError, match="cannot read the memory: gone"):
        prefill.step()
    memory = it.guard.memory(warm=7, spare=0, ordinary=0)
    assert (memory.headroom, memory.warm, memory.error) == (0, 7, "cannot read the memory: gone")


def test_the_worst_counter_wins(llama: Any) -> None:
    meter = FakeMeter(active=1 * GB, pool=1 * GB, footprint=3 * GB)
    assert Guard(Limit(4 * GB, 0), meter).memory(0, 0, 0).headroom == 1 * GB
    meter.pool = int(2.5 * GB)
    assert Guard(Limit(4 * GB, 0), meter).memory(0, 0, 0).headroom == int(0.5 * GB)


def test_the_real_meter_sees_what_mlx_holds() -> None:
    before = MlxMeter().read()
    block = mx.ones((50_000_000,))
    mx.eval(block)
    after = MlxMeter().read()
    assert after.active - before.active == 200_000_000
    # Some of it may be memory that the process had held on to.
    assert after.footprint - before.footprint > 50_000_000
    assert after.physical > after.footprint
    del block
    assert MlxMeter().read().active == before.active
    mx.clear_cache()
    assert MlxMeter().read().pool == 0


def test_what_a_chunk_takes_is_measured(llama: Any) -> None:
    it = Prefiller(llama)
    it.finish(it.begin(ids(200)))
    cost = it.guard.cost
    assert cost is not None
    # At least the keys and values of the last chunk, at most a few megabytes for so small a model.
    assert 1000 < cost.transient < 20_000_000
    assert cost.peak(200) == cost.working(200) + max(cost.transient, cost.working(200) // 2)


def test_a_cost_that_is_not_known_still_needs_some_room() -> None:
    guard = Guard(Limit(4 * GB, 0), FakeMeter(active=5 * GB))
    with pytest.raises(NoRoomError):
        guard.admit(10)
    with pytest.raises(NoRoomError):
        guard.chunk(0, 10)


def test_every_array_of_a_part_is_found() -> None:
    part = make_part = KVCache()
    make_part.update_and_fetch(mx.zeros((1, 1, 3, 8)), mx.zeros((1, 1, 3, 8)))
    assert layers.nbytes([part, (part.keys, {"a": part.values})]) == 2 * part.nbytes
    assert Cost(0).kept(1, 1) == 0


@pytest.mark.parametrize("name", ["afm7", "gemma3n", "nemotron-nas"])
def test_a_draft_model_whose_caches_cannot_be_told_apart_is_named(name: str) -> None:
    model = build(name)
    reason = f"it has {len(make_prompt_cache(model))} caches for {len(model.layers)} layers"
    with pytest.raises(UnkeepableError, match=reason):
        trace(model, build("llama"))
    assert trace(build("llama"), model)(3)
