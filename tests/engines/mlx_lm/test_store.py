"""The warm store and the prompt cache that answers from it, with a real tiny model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx_lm
import pytest
from mlx_lm.models.cache import make_prompt_cache

from tests.engines.mlx_lm.warming import answer, assert_same_answer, generated, ids, make_provider, warm
from tests.toys import ARCHITECTURES
from warmd.engines.base import LiveRequest, Prefix
from warmd.engines.mlx_lm.prefill import Prefill
from warmd.engines.mlx_lm.prompt_cache import WarmPromptCache
from warmd.engines.mlx_lm.state import Layout
from warmd.engines.mlx_lm.store import Quantising, WarmStore
from warmd.radix import Tokens, pack

KEY = ("model", None, None)
TAIL = [7, 300, 21, 5]


@pytest.fixture(scope="module", params=ARCHITECTURES)
def model(request: pytest.FixtureRequest, models: dict[str, Path]) -> Any:
    """One loaded model an architecture."""
    return mlx_lm.load(str(models[request.param]))[0]


@pytest.fixture(scope="module")
def llama(models: dict[str, Path]) -> Any:
    """A model with per-token caches."""
    return mlx_lm.load(str(models["llama"]))[0]


def test_a_request_after_a_warm_prefix_gets_the_cold_answer(model: Any) -> None:
    store, prefix = WarmStore(), ids(61)
    warmed = warm(store, make_provider(model), prefix)
    assert (warmed.tokens, warmed.new_tokens, warmed.reused_tokens) == (61, 61, 0)
    cold = answer(model, prefix + TAIL, make_prompt_cache(model))
    cache = WarmPromptCache(store, 10)
    cache.model_key = KEY
    found, rest = cache.fetch_nearest_cache(KEY, prefix + TAIL)
    assert rest == TAIL
    assert found is not None
    assert_same_answer(cold, answer(model, rest, found))


def test_nothing_a_request_does_changes_what_is_held(model: Any) -> None:
    store, prefix = WarmStore(), ids(61)
    warm(store, make_provider(model), prefix)
    state = store.match(prefix + TAIL)
    assert state is not None
    answer(model, ids(40, seed=9), state.copy(len(TAIL)))
    first = state.copy(len(TAIL))
    second = state.copy(len(TAIL))
    cold = answer(model, prefix + TAIL, make_prompt_cache(model))
    assert_same_answer(cold, answer(model, TAIL, first))
    assert_same_answer(cold, answer(model, TAIL, second))


def begun(model: Any, store: WarmStore, tokens: list[int], steps: int) -> Prefill:
    """A prefill after some steps of seven tokens."""
    store.declare([Prefix(tuple(tokens))])
    prefill = Prefill(Prefix(tuple(tokens)), store, make_provider(model), 7, lambda done: None)
    for _ in range(steps):
        assert prefill.step() is None
    return prefill


def test_a_request_gets_what_a_warming_has_done_so_far_and_the_warming_goes_on(model: Any) -> None:
    store, tokens = WarmStore(), ids(60)
    prefill = begun(model, store, tokens, 5)
    store.offer(pack(tokens + TAIL))
    found = store.match(tokens + TAIL)
    assert found is not None
    assert found.length == 35
    cold = answer(model, tokens + TAIL, make_prompt_cache(model))
    assert_same_answer(cold, answer(model, tokens[35:] + TAIL, found.copy(25 + len(TAIL))))
    while (warmed := prefill.step()) is None:
        pass
    assert (warmed.new_tokens, warmed.reused_tokens) == (60, 0)
    state = store.match(tokens + TAIL)
    assert state is not None
    assert_same_answer(cold, answer(model, TAIL, state.copy(len(TAIL))))
    assert store.unfinished == {}


def edited(model: Any, store: WarmStore) -> tuple[list[int], Prefill]:
    """An edited prefix in the midst of its warming, and beside it its former version, which is held."""
    old, new = ids(61), ids(50) + ids(60, seed=3)
    warm(store, make_provider(model), old)
    return new, begun(model, store, new, 5)


def test_beside_the_version_before_an_edit_a_request_gets_what_is_done_too(model: Any) -> None:
    store = WarmStore()
    new, prefill = edited(model, store)
    cold = answer(model, new + TAIL, make_prompt_cache(model))
    for _ in range(3):
        store.offer(pack(new + TAIL))
        found = store.match(new + TAIL)
        assert found is not None
        assert_same_answer(cold, answer(model, (new + TAIL)[found.length :], found.copy(40)))
    while prefill.step() is None:
        pass
    state = store.match(new + TAIL)
    assert state is not None
    assert state.length == 110
    assert_same_answer(cold, answer(model, TAIL, state.copy(len(TAIL))))


def test_beside_the_version_before_an_edit_a_stopped_warming_goes_on_later(model: Any) -> None:
    store = WarmStore()
    new, prefill = edited(model, store)
    prefill.abandon()
    assert warm(store, make_provider(model), new).reused_tokens >= 35
    fresh = WarmStore()
    warm(fresh, make_provider(model), new)
    store.drop([Prefix(tuple(ids(61))).key])
    assert store.warm_bytes == fresh.warm_bytes


def test_a_part_from_before_the_state_was_quantised_goes_once_all_of_it_is_held(llama: Any) -> None:
    provider = make_provider(llama, kv_bits=8, prefill_step_size=64)
    sizes = []
    for is_offered in (False, True):
        store, tokens = WarmStore(quantising=Quantising(64, 0)), ids(200)
        store.declare([Prefix(tuple(tokens))])
        prefill = Prefill(Prefix(tuple(tokens)), store, provider, 7, lambda done: None)
        for _ in range(6):
            prefill.step()
        if is_offered:
            store.offer(pack(tokens + TAIL))
            assert prefill._cache == []
        while prefill.step() is None:
            pass
        sizes.append(store.warm_bytes)
    assert sizes[0] == sizes[1]


def test_what_is_in_doubt_is_offered_to_nobody(model: Any) -> None:
    store, tokens = WarmStore(), ids(60)
    prefill = begun(model, store, tokens, 5)
    prefill.doubt()
    store.offer(pack(tokens + TAIL))
    assert store.match(tokens + TAIL) is None


def test_a_warming_that_cannot_hand_over_what_it_has_harms_no_request() -> None:
    class Broken:
        def offer(self, tokens: Tokens) -> None:
            raise MemoryError

    cache = WarmPromptCache(WarmStore(), 10)
    cache.model_key = KEY
    cache._store.unfinished[Broken()] = None
    assert cache.fetch_nearest_cache(KEY, [1, 2, 3]) == (None, [1, 2, 3])


@pytest.mark.parametrize("shared", [0, 10, 20])
def test_a_request_that_begins_otherwise_leaves_a_warming_alone(model: Any, shared: int) -> None:
    store, tokens = WarmStore(), ids(60)
    prefill = begun(model, store, tokens, 5)
    is_cut = shared >= 16 and Layout.of(prefill._cache, 35).is_cuttable
    store.offer(pack(tokens[:shared] + ids(40, seed=5)))
    assert (store.match(tokens) is not None) == is_cut
    prefill.abandon()
    assert store.unfinished == {}


def test_what_is_in_doubt_is_not_kept_when_its_warming_is_stopped(model: Any) -> None:
    store, tokens = WarmStore(), ids(60)
    prefill = begun(model, store, tokens, 5)
    store.offer(pack(tokens + TAIL))
    assert prefill.step() is None
    prefill.doubt()
    prefill.abandon()
    store.drop([Prefix(tuple(tokens)).key])
    assert store.match(tokens + TAIL) is None
    assert store.warm_bytes == 0


def test_an_entry_that_goes_on_from_a_held_prefix_prefills_only_the_rest(model: Any) -> None:
    store, prefix = WarmStore(), ids(61)
    warm(store, make_provider(model), prefix[:40])
    warmed = warm(store, make_provider(model), prefix)
    assert (warmed.new_tokens, warmed.reused_tokens) == (21, 40)
    state = store.match(prefix + TAIL)
    assert state is not None
    cold = answer(model, prefix + TAIL, make_prompt_cache(model))
    assert_same_answer(cold, answer(model, TAIL, state.copy(len(TAIL))))


STEP = 32


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("size", [STEP - 9, 3 * STEP, 3 * STEP + 13])
@pytest.mark.parametrize("chunk", [7, STEP, 500])
def test_quantised_state_gives_the_answer_of_a_cold_quantised_prefill(
    llama: Any, bits: int, size: int, chunk: int
) -> None:
    store, prefix = WarmStore(quantising=Quantising(STEP, 0)), ids(size)
    provider = make_provider(llama, kv_bits=bits, prefill_step_size=STEP)
    warm(store, provider, prefix, chunk)
    state = store.match(prefix + TAIL)
    assert state is not None
    cold = generated(llama, prefix + TAIL, make_prompt_cache(llama), bits, STEP)
    for expected, found in zip(cold, generated(llama, TAIL, state.copy(len(TAIL)), bits, STEP), strict=True):
        assert_same_answer(expected, found)


def test_a_draft_model_has_its_own_state_behind_the_model_s(llama: Any) -> None:
    store, prefix = WarmStore(), ids(30)
    warm(store, make_provider(llama, draft=llama), prefix)
    state = store.match(prefix + TAIL)
    assert state is not None
    assert [layer.offset for layer in state.copy(0)] == [30] * 4


def test_the_longest_held_prefix_wins_and_something_is_always_left_over(llama: Any) -> None:
    store, tokens = WarmStore(), ids(30)
    for size in (10, 20, 30):
        warm(store, make_provider(llama), tokens[:size])
    matched = [store.match(tokens[:size]) for size in (10, 11, 20, 29, 30)]
    assert [state.length if state else 0 for state in matched] == [9, 10, 19, 28, 29]
    assert store.match(ids(30, seed=2)) is None


def test_dropping_frees_and_unknown_keys_are_ignored(llama: Any) -> None:
    store, tokens = WarmStore(), ids(30)
    warm(store, make_provider(llama), tokens)
    store.drop([Prefix(tuple(tokens)).key, "unknown"])
    assert (store.match(tokens + TAIL), dict(store.held), store.warm_bytes) == (None, {}, 0)


def test_ordinary_traffic_cannot_push_a_warm_prefix_out(llama: Any) -> None:
    store, prefix = WarmStore(), ids(20)
    warm(store, make_provider(llama), prefix)
    cache = WarmPromptCache(store, 2)
    cache.model_key = KEY
    for seed in range(3, 18):
        ordinary = make_prompt_cache(llama)
        answer(llama, prefix + ids(9, seed), ordinary)
        cache.insert_cache(KEY, prefix + ids(9, seed), ordinary)
    assert len(cache) == 2
    assert cache.fetch_nearest_cache(KEY, prefix + TAIL)[1] == TAIL


def test_the_longer_of_a_warm_prefix_and_an_ordinary_entry_serves(llama: Any) -> None:
    store, prefix = WarmStore(), ids(20)
    warm(store, make_provider(llama), prefix)
    served: list[LiveRequest] = []
    cache = WarmPromptCache(store, 10, served.append)
    cache.model_key = KEY
    conversation = prefix + ids(9, seed=3)
    ordinary = make_prompt_cache(llama)
    answer(llama, conversation, ordinary)
    cache.insert_cache(KEY, conversation, ordinary)
    assert cache.fetch_nearest_cache(KEY, conversation + TAIL)[1] == TAIL
    assert (served[-1].cached, served[-1].warm) == (len(conversation), 0)
    assert cache.fetch_nearest_cache(KEY, prefix + TAIL)[1] == TAIL
    assert (served[-1].cached, served[-1].warm) == (len(prefix), len(prefix))


def test_an_exact_repetition_of_an_ordinary_entry_never_leaves_an_empty_rest(model: Any) -> None:
    tokens, cache = ids(30), WarmPromptCache(WarmStore(), 10)
    ordinary = make_prompt_cache(model)
    answer(model, tokens, ordinary)
    cache.insert_cache(KEY, tokens, ordinary)
    found, rest = cache.fetch_nearest_cache(KEY, tokens)
    assert rest
    cold = answer(model, tokens, make_prompt_cache(model))
    assert_same_answer(cold, answer(model, rest, found if found is not None else make_prompt_cache(model)))


def test_another_model_s_requests_never_get_this_model_s_state(llama: Any) -> None:
    store, prefix = WarmStore(), ids(20)
    warm(store, make_provider(llama), prefix)
    cache = WarmPromptCache(store, 10)
    cache.model_key = KEY
    assert cache.fetch_nearest_cache(("other", None, None), prefix + TAIL) == (None, prefix + TAIL)


def test_what_is_dropped_although_it_is_wanted_is_computed_anew_but_for_what_others_need(model: Any) -> None:
    store, tokens = WarmStore(), ids(61)
    other = Prefix((*tokens[:30], *ids(20, seed=3)))
    store.declare([Prefix(tuple(tokens)), other])
    warm(store, make_provider(model), tokens)
    warm(store, make_provider(model), list(other.tokens))
    store.drop([Prefix(tuple(tokens)).key])
    again = warm(store, make_provider(model), tokens)
    assert (again.reused_tokens, again.new_tokens) == (30, 31)


@pytest.mark.parametrize("start", [0, 100])
@pytest.mark.parametrize("size", [20, 49, 64, 70, 130])
def test_a_long_request_behind_a_short_prefix_is_quantised_where_a_cold_one_is(
    llama: Any, start: int, size: int
) -> None:
    step, prefix = 64, ids(size)
    store = WarmStore(quantising=Quantising(step, start))
    warm(store, make_provider(llama, kv_bits=4, prefill_step_size=step, quantized_kv_start=start), prefix, 7)
    request = prefix + ids(200, seed=9)
    found = store.match(request)
    done = found.length if found else 0
    cache = found.copy(len(request) - done) if found else make_prompt_cache(llama)
    cold = generated(llama, request, make_prompt_cache(llama), 4, step, start)
    for expected, answered in zip(cold, generated(llama, request[done:], cache, 4, step, start), strict=True):
        assert_same_answer(expected, answered)
