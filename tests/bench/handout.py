"""Handing out a warm match and writing to it, beside mlx-lm's own way: a deep copy of a whole cache."""

from __future__ import annotations

import copy
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
from mlx_lm.generate import BatchGenerator, _merge_caches
from mlx_lm.models.cache import KVCache

from tests.bench.report import Result, Row, ratios, summarise
from tests.bench.rig import PREFIX_TOKENS, Setting, load_architecture
from tests.engines.mlx_lm.warming import ids
from warmd.engines.base import Prefix
from warmd.engines.mlx_lm.prompt_cache import WarmPromptCache
from warmd.engines.mlx_lm.store import WarmStore

LAYERS, HEADS, HEAD_DIM = 16, 8, 64
TAIL = 20
TIMES = 1.2
MORE_ROUNDS = 5
"""Copies are quick, and other processes disturb them much."""
PARTS = (PREFIX_TOKENS // 3, 2 * PREFIX_TOKENS // 3)
"""Where shorter prefixes end, of a path of three nodes."""

HOW = (
    f"{PREFIX_TOKENS:,} tokens of state of {LAYERS} layers with {HEADS} heads of {HEAD_DIM} in float32, and "
    f"the first write of {TAIL} more, computed. Store: what a hit of the prompt cache gives, of a path of "
    "one node and of three. Deep copy: mlx-lm's way with one whole cache, as its own steps leave it "
    "(sequential: with room for more in blocks of 256; batched: as it is taken out of a batch). Sequential: "
    "update_and_fetch; batched: merged into a batch of one first, as its generator does. Memory: mlx's peak "
    "of active bytes over what was held before. Batch generator: to the first token of a request through "
    "mlx-lm's generator on a toy model with state of this size, computing included. Rounds of all of "
    "these in turn; a ratio is of the same round."
)


def run(setting: Setting) -> Result:
    """Measure."""
    ways = _Ways(setting)
    rows: list[Row] = []
    for what, use in {
        "sequential": _write,
        "batched": _merge_and_write,
        "batch generator": ways.answer,
    }.items():
        rounds = setting.rounds if use == ways.answer else MORE_ROUNDS * setting.rounds
        rows += _compare(what, ways.of(what), use, rounds)
    return Result("handout", HOW, tuple(rows))


Cache = list[Any]
Get = Callable[[], Cache]
Use = Callable[[Get], object]


class _Ways:
    """The ways to get a cache for a request."""

    def __init__(self, setting: Setting) -> None:
        self._model = load_architecture(
            setting,
            "llama",
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=HEADS,
            head_dim=HEAD_DIM,
        )
        self._request = [*ids(PREFIX_TOKENS), *ids(TAIL, 2)]
        self._one, self._three = _stored(()), _stored(PARTS)
        self._grown, self._exact = _make_cache(grown=True), _make_cache()

    def of(self, what: str) -> Mapping[str, Get]:
        """By name; the deep copy is the last."""
        whole = self._grown if what == "sequential" else self._exact
        return {
            "store, 1 node": lambda: self._fetch(self._one),
            "store, 3 nodes": lambda: self._fetch(self._three),
            "deep copy": lambda: copy.deepcopy(whole),
        }

    def _fetch(self, store: WarmPromptCache) -> Cache:
        cache, rest = store.fetch_nearest_cache(None, self._request)
        if cache is None or len(rest) != TAIL:
            raise RuntimeError(f"{len(rest)} tokens were left, expected {TAIL}")
        return cache

    def answer(self, get: Get) -> None:
        """The first token of a request, as mlx-lm's server computes it."""
        generator = BatchGenerator(self._model, max_tokens=1)
        # Nobody else keeps the cache, as in the server: what keeps it would be counted.
        generator.insert([self._request[PREFIX_TOKENS:]], caches=[get()])
        while not generator.next()[1]:
            pass
        generator.close()


def _rows(tokens: int) -> mx.array:
    rows = mx.random.uniform(shape=(1, HEADS, tokens, HEAD_DIM))
    mx.eval(rows)
    return rows


def _make_cache(tokens: int = PREFIX_TOKENS, *, grown: bool = False) -> Cache:
    """A cache that nothing was computed for: as large as its tokens, or grown as it does by itself."""
    cache = [KVCache() for _ in range(LAYERS)]
    for layer in cache:
        if grown:
            layer.update_and_fetch(_rows(tokens), _rows(tokens))
        else:
            layer.state = _rows(tokens), _rows(tokens), tokens
    mx.eval([layer.state for layer in cache])
    return cache


def _stored(parts: Sequence[int]) -> WarmPromptCache:
    """A prompt cache over a store of one prefix, and of shorter ones that it begins with."""
    store = WarmStore()
    prefixes = [Prefix(tuple(ids(length))) for length in (*parts, PREFIX_TOKENS)]
    store.declare(prefixes)
    for prefix in prefixes:
        store.hold(prefix, _make_cache(len(prefix), grown=True), {})
    return WarmPromptCache(store, 10)


def _write(get: Get) -> None:
    cache = get()
    for layer in cache:
        layer.update_and_fetch(_TAIL, _TAIL)
    mx.eval([layer.state for layer in cache])


def _merge_and_write(get: Get) -> None:
    _write(lambda: list(_merge_caches([get()])))


_TAIL = _rows(TAIL)


@dataclass(slots=True)
class _Samples:
    milliseconds: list[float] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)


def _compare(what: str, ways: Mapping[str, Get], use: Use, rounds: int) -> list[Row]:
    found = {name: _Samples() for name in ways}
    for number in range(rounds + 1):
        for name, get in ways.items():
            milliseconds, megabytes = _measure(get, use)
            # The first round pays for what is set up once.
            if number > 0:
                found[name].milliseconds.append(milliseconds)
                found[name].megabytes.append(megabytes)
    *ours, (_, plain) = found.items()
    rows = [summarise(f"{what}: {name}", each.milliseconds, "ms") for name, each in found.items()]
    for name, each in ours:
        time_ratios = ratios(each.milliseconds, plain.milliseconds)
        rows.append(summarise(f"{what}: {name} / deep copy", time_ratios, "x", at_most=TIMES))
    rows += [summarise(f"{what}: {name}, memory", each.megabytes, "MB") for name, each in found.items()]
    for name, each in ours:
        memory_ratios = ratios(each.megabytes, plain.megabytes)
        rows.append(summarise(f"{what}: {name} / deep copy, memory", memory_ratios, "x", at_most=TIMES))
    return rows


def _measure(get: Get, use: Use) -> tuple[float, float]:
    gc.collect()
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    began = time.perf_counter()
    use(get)
    milliseconds = (time.perf_counter() - began) * 1000
    return milliseconds, (mx.get_peak_memory() - before) / 1e6
