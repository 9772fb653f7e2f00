"""The answer after a hit is the cold answer: on every architecture that mlx-lm can build tiny."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.generate import BatchGenerator
from mlx_lm.models.cache import (
    CacheList,
    ConcatenateKVCache,
    KVCache,
    QuantizedKVCache,
    make_prompt_cache,
    trim_prompt_cache,
)

from tests.architectures import (
    ALONE,
    CONFIGS,
    INEXACT,
    NOT_BUILT,
    UNPADDED,
    WINDOW,
    build,
    model_type_of,
    model_types,
)
from tests.engines.mlx_lm.warming import (
    TOLERANCE,
    answer,
    assert_same_answer,
    difference,
    generated,
    ids,
    make_provider,
    prefilled,
    warm,
)
from warmd.engines.base import Prefix
from warmd.engines.mlx_lm.prefill import Prefill
from warmd.engines.mlx_lm.prompt_cache import WarmPromptCache
from warmd.engines.mlx_lm.store import Quantising, WarmStore

KEY = ("model", None, None)
TAIL = [7, 300, 21, 5]
OTHER_TAIL = [12, 3, 290, 4, 250, 9, 33]
PREFIX = ids(61)
"""Longer than any window, and not a whole number of windows, chunks or blocks."""

Served = tuple[list[Any], list[int]]


@pytest.fixture(scope="module", params=CONFIGS)
def name(request: pytest.FixtureRequest) -> str:
    """Each configuration in turn."""
    return str(request.param)


@pytest.fixture(scope="module")
def model(name: str) -> Any:
    """Its model."""
    return build(name)


@pytest.fixture(scope="module")
def whole(model: Any) -> mx.array:
    """Its answer to PREFIX + TAIL, computed cold and in one go."""
    return answer(model, PREFIX + TAIL, make_prompt_cache(model))


def serving(store: WarmStore) -> WarmPromptCache:
    """A prompt cache that answers from the store."""
    cache = WarmPromptCache(store, 10)
    cache.model_key = KEY
    return cache


def served(cache: WarmPromptCache, tokens: list[int]) -> Served:
    """What a request is handed: a cache, and the tokens it has to compute."""
    found, rest = cache.fetch_nearest_cache(KEY, tokens)
    assert found is not None
    assert rest
    assert tokens[len(tokens) - len(rest) :] == rest
    return found, rest


def cold(name: str, model: Any, tokens: list[int], ends: Sequence[int]) -> list[Any]:
    """A cold prefill's cache of all `tokens`: in one go, or by the same chunks where chunks matter."""
    return prefilled(model, tokens, ends if name in INEXACT else ())


def test_every_model_type_is_built_or_has_a_reason_not_to_be() -> None:
    built = {model_type_of(name) for name in CONFIGS}
    assert built | set(NOT_BUILT) == model_types()
    assert not built & set(NOT_BUILT)
    assert {*INEXACT, *ALONE, *UNPADDED} <= set(CONFIGS)


def test_wrong_state_would_show(model: Any, whole: mx.array) -> None:
    """Or nothing here could fail: each part of the prefix matters far more than what counts as the same."""
    assert mx.all(mx.isfinite(whole)).item()
    for start in range(0, 60, 20):
        changed = PREFIX[:start] + ids(20, seed=2) + PREFIX[start + 20 :] + TAIL
        assert difference(whole, answer(model, changed, make_prompt_cache(model))) > 20 * TOLERANCE


def test_windows_are_shorter_than_the_prefix(model: Any) -> None:
    sizes = [layer.max_size for layer in make_prompt_cache(model) if hasattr(layer, "max_size")]
    assert all(size == WINDOW for size in sizes)


def test_inexact_means_that_chunks_alone_change_the_answer(name: str, model: Any, whole: mx.array) -> None:
    chunked = answer(model, TAIL, prefilled(model, PREFIX, range(7, 61, 7)))
    assert (difference(whole, chunked) > TOLERANCE) == (name in INEXACT)


@pytest.mark.promise(7)
def test_a_request_after_a_warm_prefix_gets_the_cold_answer(name: str, model: Any, whole: mx.array) -> None:
    store, ends = WarmStore(), list[int]()
    warm(store, make_provider(model), PREFIX, ends=ends)
    found, rest = served(serving(store), PREFIX + TAIL)
    assert rest == TAIL
    logits = answer(model, rest, found)
    by_the_same_chunks = answer(model, TAIL, prefilled(model, PREFIX, ends))
    assert mx.array_equal(by_the_same_chunks, logits).item()
    assert_same_answer(by_the_same_chunks if name in INEXACT else whole, logits)


def next_token(logits: mx.array) -> list[int]:
    """The greedy choice."""
    return [int(mx.argmax(logits))]


def test_requests_from_one_prefix_do_not_disturb_each_other(name: str, model: Any) -> None:
    store, ends = WarmStore(), list[int]()
    warm(store, make_provider(model), PREFIX, ends=ends)
    cache = serving(store)
    tails = (TAIL, OTHER_TAIL)
    warm_ones = [served(cache, PREFIX + tail)[0] for tail in tails]
    cold_ones = [cold(name, model, PREFIX, ends) for _ in tails]
    todo = [list(tail) for tail in tails]
    for _ in range(4):
        for index in range(len(tails)):
            expected = answer(model, todo[index], cold_ones[index])
            assert_same_answer(expected, answer(model, todo[index], warm_ones[index]))
            todo[index] = next_token(expected)
    found, rest = served(cache, PREFIX + TAIL)
    expected = answer(model, TAIL, cold(name, model, PREFIX, ends))
    assert_same_answer(expected, answer(model, rest, found))


def is_batchable(model: Any) -> bool:
    """As mlx-lm's server decides it."""
    return all(hasattr(layer, "merge") for layer in make_prompt_cache(model))


Answer = list[tuple[int, mx.array]]
"""The tokens and their log-probabilities."""


def batched(model: Any, requests: Sequence[Served], count: int, together: bool) -> list[Answer]:
    """The answers to some requests, as mlx-lm's server batches them.

    Args:
        model: The model.
        requests: What each was handed.
        count: Tokens to generate for each.
        together: False: each comes when the ones before it are being answered.
    """
    generator = BatchGenerator(model, stream=mx.default_stream(mx.default_device()))
    answers: dict[int, Answer] = {}
    waiting = list(requests)
    while waiting or any(len(tokens) < count for tokens in answers.values()):
        if together or all(answers.values()):
            arriving, waiting = (waiting, []) if together else (waiting[:1], waiting[1:])
            for cache, rest in arriving:
                (uid,) = generator.insert_segments(
                    segments=[[rest]], max_tokens=[count], caches=[cache], all_tokens=[list(PREFIX)]
                )
                answers[uid] = []
        for response in generator.next()[1]:
            answers[response.uid].append((response.token, response.logprobs))
    generator.close()
    return list(answers.values())


def worst(model: Any, cache: list[Any], tail: list[int], found: Answer) -> float:
    """How far an answer is from the cold one: the largest difference of any of its steps.

    Each token has to be what a cold request would have chosen, whatever it chooses between equals.
    """
    # The batch generator computes a prompt's last token by itself.
    answer(model, tail[:-1], cache)
    step, differences = tail[-1], list[float]()
    for token, logprobs in found:
        logits = answer(model, [step], cache)
        expected = logits - mx.logsumexp(logits)
        differences += [difference(expected, logprobs), gap(expected, token)]
        step = token
    return max(differences)


def gap(expected: mx.array, token: int) -> float:
    """How much less likely a token is than the likeliest, on the scale of `difference`."""
    return float((expected.max() - expected[token]) / mx.abs(expected).max())


def tails_for(name: str, together: bool) -> tuple[list[int], ...]:
    """Tails of requests that mlx-lm answers right when it batches them."""
    if name in ALONE:
        return (TAIL,)
    if name in UNPADDED and together:
        return (TAIL, OTHER_TAIL[: len(TAIL)])
    return (TAIL, OTHER_TAIL)


@pytest.mark.parametrize("together", [True, False])
def test_batched_requests_get_the_cold_answers(name: str, model: Any, together: bool) -> None:
    if not is_batchable(model):
        pytest.skip("mlx-lm serves this model one request at a time")
    store, ends = WarmStore(), list[int]()
    warm(store, make_provider(model), PREFIX, ends=ends)
    cache = serving(store)
    tails = tails_for(name, together)
    found = batched(model, [served(cache, PREFIX + tail) for tail in tails], 5, together)
    for tail, answered in zip(tails, found, strict=True):
        assert worst(model, cold(name, model, PREFIX, ends), tail, answered) < TOLERANCE


@pytest.mark.parametrize("name", [*ALONE, *UNPADDED], scope="module")
def test_mlx_lm_itself_batches_these_wrong(name: str, model: Any) -> None:
    tails = (TAIL, OTHER_TAIL)
    requests = [(prefilled(model, PREFIX), tail) for tail in tails]
    try:
        found = batched(model, requests, 6, together=True)
    except ValueError:
        return
    assert (
        max(map(partial(worst, model), (prefilled(model, PREFIX) for _ in tails), tails, found)) > TOLERANCE
    )


# --- what a tree of shared beginnings has to keep true ------------------------------------------------------

OTHER = PREFIX[:40] + ids(21, seed=3)
"""Parts from PREFIX inside a window and a chunk."""

EDITED = PREFIX[:50] + ids(14, seed=4)


def is_per_token(model: Any) -> bool:
    """True when every layer keeps keys and values of each token, so that any beginning can be cut off."""
    layers = make_prompt_cache(model)
    while any(type(layer) is CacheList for layer in layers):
        layers = [part for layer in layers for part in getattr(layer, "caches", (layer,))]
    return all(type(layer) in (KVCache, QuantizedKVCache, ConcatenateKVCache) for layer in layers)


def declare(store: WarmStore, *prefixes: list[int]) -> None:
    """Tell the store what is wanted."""
    store.declare([Prefix(tuple(tokens)) for tokens in prefixes])


def drop(store: WarmStore, tokens: list[int]) -> None:
    """Free a prefix."""
    store.drop([Prefix(tuple(tokens)).key])


def beginning(model: Any, tokens: list[int], ends: Sequence[int], length: int) -> list[Any]:
    """The state of the first tokens as a prefill of all of them by chunks has left it."""
    last = min(end for end in ends if end >= length)
    cache = prefilled(model, tokens[:last], [end for end in ends if end < last])
    if last > length:
        trim_prompt_cache(cache, last - length)
    return cache


def cold_on(
    name: str, model: Any, tokens: list[int], ends: Sequence[int], ends_of_prefix: Sequence[int], shared: int
) -> list[Any]:
    """A cold prefill's cache; where chunks matter, `shared` tokens by the chunks that PREFIX came in."""
    if name not in INEXACT:
        return prefilled(model, tokens)
    return prefilled(model, tokens, ends, beginning(model, PREFIX, ends_of_prefix, shared), shared)


def test_what_two_prefixes_share_is_prefilled_once(name: str, model: Any) -> None:
    store, provider = WarmStore(), make_provider(model)
    ends, other_ends = list[int](), list[int]()
    declare(store, PREFIX, OTHER)
    assert warm(store, provider, PREFIX, ends=ends).reused_tokens == 0
    warmed = warm(store, provider, OTHER, ends=other_ends)
    assert warmed.reused_tokens >= 40
    cache = serving(store)
    for tokens, own_ends in ((PREFIX, ends), (OTHER, other_ends)):
        found, rest = served(cache, tokens + TAIL)
        assert rest == TAIL
        shared = 40 if tokens is PREFIX else warmed.reused_tokens
        expected = answer(model, TAIL, cold_on(name, model, tokens, own_ends, ends, shared))
        assert_same_answer(expected, answer(model, TAIL, found))


def test_after_an_edit_the_rest_is_prefilled_and_the_answer_cold(name: str, model: Any) -> None:
    store, provider = WarmStore(), make_provider(model)
    ends, edited_ends = list[int](), list[int]()
    declare(store, PREFIX)
    warm(store, provider, PREFIX, ends=ends)
    declare(store, EDITED)
    warmed = warm(store, provider, EDITED, ends=edited_ends)
    drop(store, PREFIX)
    assert list(store.held) == [Prefix(tuple(EDITED)).key]
    _, rest = serving(store).fetch_nearest_cache(KEY, PREFIX + TAIL)
    assert len(rest) >= len((PREFIX + TAIL)[50:])
    if is_per_token(model):
        assert warmed.reused_tokens == 50
    found, rest = served(serving(store), EDITED + TAIL)
    assert rest == TAIL
    expected = cold_on(name, model, EDITED, edited_ends, ends, warmed.reused_tokens)
    assert_same_answer(answer(model, TAIL, expected), answer(model, TAIL, found))


def test_a_cancelled_warming_leaves_nothing_wrong_behind(name: str, model: Any) -> None:
    store, provider = WarmStore(), make_provider(model)
    cache = serving(store)
    declare(store, PREFIX)
    ends = cancel(store, provider)
    assert not store.held
    warm(store, provider, PREFIX, ends=ends)
    found, rest = served(cache, PREFIX + TAIL)
    assert rest == TAIL
    expected = answer(model, TAIL, cold(name, model, PREFIX, sorted(ends)))
    assert_same_answer(expected, answer(model, TAIL, found))


def test_a_cancelled_warming_of_what_nobody_wants_leaves_nothing_at_all(model: Any) -> None:
    store = WarmStore()
    declare(store, PREFIX)
    cancel(store, make_provider(model))
    declare(store)
    drop(store, PREFIX)
    assert not store.held
    assert serving(store).fetch_nearest_cache(KEY, PREFIX + TAIL) == (None, PREFIX + TAIL)


def cancel(store: WarmStore, provider: Any) -> list[int]:
    """Stop the warming of PREFIX after two chunks; where they ended."""
    ends: list[int] = []
    prefill = Prefill(Prefix(tuple(PREFIX)), store, provider, 7, ends.append)
    for _ in range(2):
        assert prefill.step() is None
    prefill.abandon()
    return ends


@pytest.mark.parametrize("shared", [33, 60])
def test_a_part_of_a_prefix_gives_the_cold_answer(name: str, model: Any, shared: int) -> None:
    request = PREFIX[:shared] + ids(20, seed=5)
    store, ends = WarmStore(), list[int]()
    declare(store, PREFIX)
    warm(store, make_provider(model), PREFIX, ends=ends)
    cache, rest = serving(store).fetch_nearest_cache(KEY, list(request))
    if is_per_token(model):
        assert rest == request[shared:]
    if cache is None:
        assert rest == request
        return
    taken = len(request) - len(rest)
    assert 0 < taken <= shared
    expected = cold_on(name, model, request[:taken], (), ends, taken)
    assert_same_answer(answer(model, rest, expected), answer(model, rest, cache))


ONE_OF_EACH_MIX = (
    "baichuan_m1",
    "deepseek_v32",
    "deepseek_v41",
    "falcon_h1",
    "gear",
    "hunyuan",
    "iquestloopcoder",
    "llama",
    "llama4",
    "longcat_flash_ngram",
    "minimax_m3_vl",
    "qwen3_next",
    "recurrent_gemma",
    "rwkv7",
)


@pytest.mark.parametrize("name", ONE_OF_EACH_MIX, scope="module")
def test_through_many_edits_every_answer_stays_cold(model: Any) -> None:
    """A changing set of prefixes that part from each other at several places."""
    random, store, provider, held = Random(name_of(model)), WarmStore(), make_provider(model), set[Tokens]()
    cache = serving(store)
    for step in range(6):
        wanted = {edited(random, step) for _ in range(random.randint(1, 3))} | set(sorted(held)[:1])
        declare(store, *map(list, wanted))
        for tokens in sorted(wanted - held):
            warm(store, provider, tokens)
        for tokens in held - wanted:
            drop(store, list(tokens))
        held = wanted
        assert set(store.held) == {Prefix(tokens).key for tokens in held}
        for request in [*map(list, held), edited(random, -1)]:
            expected = answer(model, [*request, *TAIL], make_prompt_cache(model))
            found, rest = cache.fetch_nearest_cache(KEY, [*request, *TAIL])
            assert_same_answer(expected, answer(model, rest, found or make_prompt_cache(model)))


Tokens = tuple[int, ...]


def edited(random: Random, step: int) -> Tokens:
    """PREFIX, changed from somewhere on."""
    return (*PREFIX[: random.choice((20, 34, 35, 47))], *ids(random.choice((1, 9, 30)), seed=10 + step))


def name_of(model: Any) -> str:
    """Makes what is random depend on the model only."""
    return str(model.model_type)


# --- quantised state, and a draft model ---------------------------------------------------------------------

STEP = 32
QUANTISABLE = (
    "apertus",
    "bailing_moe_linear",
    "dbrx",
    "deepseek_v2",
    "glm4",
    "gpt2",
    "granitemoehybrid",
    "hunyuan",
    "jamba",
    "lfm2",
    "llama4",
    "minicpm3",
    "nanbeige:loops",
    "nemotron-nas",
    "nemotron_h",
    "olmo2",
    "qwen3",
    "qwen3_moe",
    "qwen3_next",
    "starcoder2",
)
"""Some of each mix of caches for which mlx-lm itself can quantise keys and values."""


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("size", [STEP - 9, 2 * STEP, 2 * STEP + 11])
@pytest.mark.parametrize("name", QUANTISABLE, scope="module")
def test_quantised_state_gives_the_cold_quantised_answer(model: Any, size: int, bits: int) -> None:
    store, prefix = WarmStore(quantising=Quantising(STEP, 0)), ids(size)
    warm(store, make_provider(model, kv_bits=bits, prefill_step_size=STEP), prefix)
    found, rest = served(serving(store), prefix + TAIL)
    assert rest == TAIL
    steps = generated(model, prefix + TAIL, make_prompt_cache(model), bits, STEP)
    for expected, logprobs in zip(steps, generated(model, rest, found, bits, STEP), strict=True):
        assert_same_answer(expected, logprobs)


@pytest.mark.parametrize("name", QUANTISABLE, scope="module")
def test_quantising_would_show(model: Any) -> None:
    """Or state that was not quantised would pass as well."""
    prefix = ids(2 * STEP + 11)
    plain, quantised = (
        generated(model, prefix + TAIL, make_prompt_cache(model), bits, STEP)[0] for bits in (None, 4)
    )
    assert difference(plain, quantised) > 2 * TOLERANCE


@pytest.mark.parametrize("draft", ["llama", "qwen3_next", "gemma3_text"])
@pytest.mark.parametrize("name", ["qwen3", "gemma3_text", "falcon_h1"], scope="module")
def test_a_draft_model_s_state_comes_behind_the_model_s_and_is_right_as_well(model: Any, draft: str) -> None:
    store, draft_model = WarmStore(), build(draft, seed=1)
    warm(store, make_provider(model, draft=draft_model), PREFIX)
    found, rest = served(serving(store), PREFIX + TAIL)
    assert rest == TAIL
    count = len(make_prompt_cache(model))
    for part, cache in ((model, found[:count]), (draft_model, found[count:])):
        assert_same_answer(answer(part, PREFIX + TAIL, make_prompt_cache(part)), answer(part, TAIL, cache))
