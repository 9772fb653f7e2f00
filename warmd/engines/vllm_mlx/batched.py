"""Warm prefixes in the memory-aware cache of vllm-mlx's batched engine (`--continuous-batching`).

Everything here runs on the one thread that owns the model, between two steps of the engine. A prefix is
prefilled in chunks, without a sampled token behind it, and stored under its own token ids: so a hybrid model,
whose state cannot be cut, serves it too. The cache's own entries are kept: a request that goes on from a
prefix of a model that cannot be cut pushes it out (the engine keeps one entry a conversation), so each is put
back, without computing anything, before the next request is looked up.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache
from vllm_mlx.memory_cache import estimate_kv_cache_memory

from warmd.engines.base import LiveRequest, NoRoomError, Prefix, Warmed, source_of
from warmd.engines.pace import Pace
from warmd.radix import pack


@dataclass(slots=True)
class Kept:
    """One warm prefix.

    Attributes:
        entry: The cache's own entry: state that nothing changes. None for a prefix that is too short.
    """

    prefix: Prefix
    entry: Any

    @property
    def kv_bytes(self) -> int | None:
        """Bytes of its state."""
        return int(self.entry.memory_bytes) if self.entry is not None else 0


class BatchedCache:
    """The warm prefixes of one batched engine.

    Args:
        engine: vllm-mlx's `BatchedEngine`, started.
        pace: Sizes chunks, and grants warming its share beside requests.
        on_request: Called on the engine's thread for each live request, once it is scheduled.
    """

    def __init__(self, engine: Any, pace: Pace, on_request: Callable[[LiveRequest], None]) -> None:
        self._scheduler = engine._engine.engine.scheduler
        self.cache = self._scheduler.memory_aware_cache
        self._model = engine._model
        self.pace = pace
        self._on_request = on_request
        self._kept: dict[str, Kept] = {}
        # The event loop looks while the engine's thread changes it.
        self._lock = threading.Lock()
        self._add_request = self._scheduler.add_request
        self._scheduler.add_request = self.add_request
        self._schedule_waiting = self._scheduler._schedule_waiting
        self._scheduler._schedule_waiting = self.schedule_waiting
        self._told: weakref.WeakSet[Any] = weakref.WeakSet()

    @property
    def shortest(self) -> int:
        """Nothing with fewer tokens is stored, although vllm-mlx reports no error."""
        return int(self.cache._config.min_prefix_tokens)

    def held(self) -> dict[str, Kept]:
        """What a request would get. From any thread."""
        with self._lock:
            if len(self.cache) == 0:
                # An eviction makes room for another entry: an empty cache was cleared, and the memory wanted.
                self._kept = {key: kept for key, kept in self._kept.items() if kept.entry is None}
            return dict(self._kept)

    def keep(self, prefix: Prefix, entry: Any) -> None:
        """Publish a prefix's entry; None for a prefix that is too short to have one.

        Raises:
            RuntimeError: The cache does not take it.
        """
        with self._lock:
            if entry is not None and not self.cache.commit_prepared(entry, evict_prefixes=False):
                raise RuntimeError("vllm-mlx's cache refused the entry")
            self._kept[prefix.key] = Kept(prefix, entry)

    def add_request(self, request: Any) -> None:
        """Takes the place of the scheduler's: see to it that the cache has what the request begins with."""
        self.restore()
        self._add_request(request)

    def schedule_waiting(self) -> list[Any]:
        """Takes the place of the scheduler's: tell of each request what it really begins from.

        What was found when it was added may have been dropped since: all of a request that was found whole
        is prefilled, as is one whose state does not fit.
        """
        scheduled: list[Any] = self._schedule_waiting()
        for request in scheduled:
            # After a failed step it is scheduled once more.
            if request not in self._told:
                self._told.add(request)
                self._on_request(self._seen(request))
        return scheduled

    def _seen(self, request: Any) -> LiveRequest:
        key, cached = tuple(request.prompt_cache_key or ()), int(request.cached_tokens)
        is_ours = any(kept.entry is not None and kept.prefix.tokens == key for kept in self.held().values())
        return LiveRequest(
            pack(request.prompt_token_ids or ()), cached, cached if is_ours else 0, is_tokens_only=True
        )

    def restore(self) -> None:
        """Put back what was pushed out, and make all of it the most recently used."""
        for kept in self.held().values():
            if kept.entry is not None:
                self.cache.commit_prepared(kept.entry, evict_prefixes=False)

    def look_up(self, tokens: list[int]) -> int:
        """How many tokens of a request the engine would not prefill."""
        self.restore()
        state, rest = fetch_uncounted(self.cache, tokens)
        # The engine prefills all of a request that it finds whole.
        if not state or not rest or not self._scheduler._validate_cache(state):
            return 0
        return len(tokens) - len(rest)

    def drop(self, keys: Iterable[str]) -> None:
        """Free prefixes; unknown keys are ignored."""
        for key in keys:
            with self._lock:
                kept = self._kept.pop(key, None)
            if kept is not None and kept.entry is not None:
                self.cache.remove(list(kept.prefix.tokens))

    def check_room(self, needed: int) -> None:
        """Check that all warm prefixes fit into the cache together.

        Raises:
            NoRoomError: One more of so many bytes would push others out.
        """
        available = self.cache._max_memory - sum(kept.kv_bytes or 0 for kept in self.held().values())
        if needed > available:
            raise NoRoomError(needed, available)

    def is_busy(self) -> bool:
        """True while a request waits or is being prefilled."""
        running = self._scheduler.running.values()
        return bool(self._scheduler.waiting) or any(not request.num_output_tokens for request in running)

    def is_decoding(self) -> bool:
        """True while requests run."""
        return bool(self._scheduler.running)

    def is_serving(self) -> bool:
        """True while there are requests. From any thread."""
        return bool(self._scheduler.waiting or self._scheduler.running)

    def begin(self, prefix: Prefix) -> Prefill:
        """Begin to prefill."""
        return Prefill(prefix, self, self._model, self._scheduler)


class Prefill:
    """One prefix on its way into the cache. All methods on the engine's thread."""

    def __init__(self, prefix: Prefix, store: BatchedCache, model: Any, scheduler: Any) -> None:
        self._prefix = prefix
        self._store = store
        self._model = model
        self._scheduler = scheduler
        self._state: list[Any] = []
        self.done = self._reused = 0

    def step(self) -> Warmed | None:
        """Compute a chunk if no request waits; the result once the last one is done.

        Raises:
            NoRoomError: It does not fit into the cache beside the other warm prefixes.
        """
        store, size = self._store, len(self._prefix)
        if size < store.shortest:
            store.keep(self._prefix, None)
            return Warmed(
                size, 0, 0, 0, None, note=f"vllm-mlx keeps nothing shorter than {store.shortest} tokens"
            )
        if not self._state:
            self._begin()
        if self.done < size and not self._may_compute():
            return None
        return self._finish() if self.done == size else None

    def _begin(self) -> None:
        cache, tokens = self._store.cache, list(self._prefix.tokens)
        found, rest = fetch_uncounted(cache, tokens)
        reused = len(tokens) - len(rest)
        if found and _covers(found, reused) and self._scheduler._validate_cache(found):
            self._state = cache.clone_for_replay(found) or []
        if self._state:
            self.done = self._reused = reused
            return
        # An entry under our key that says something else would be taken for ours.
        cache.remove(tokens)
        self._state, bound = make_prompt_cache(self._model), self._scheduler._bounded_kv_size()
        if bound is not None:
            self._state = self._scheduler._bound_cache_layers(self._state, bound)

    def _may_compute(self) -> bool:
        """Compute a chunk, unless requests come first."""
        pace = self._store.pace
        if self._store.is_busy():
            pace.busy()
            return False
        if not self._store.is_decoding():
            pace.idle()
            self._compute()
            return True
        with pace.sharing() as may:
            if may:
                self._compute()
        return bool(may)

    def _compute(self) -> None:
        tokens = self._prefix.tokens[self.done : self.done + self._store.pace.size]
        with self._store.pace.measuring(len(tokens)):
            self._model(mx.array(tokens)[None], cache=self._state)
            mx.eval([layer.state for layer in self._state])
        self.done += len(tokens)
        mx.clear_cache()
        taken = estimate_kv_cache_memory(self._state)
        self._store.check_room(taken * len(self._prefix) // self.done if self._grows() else taken)

    def _grows(self) -> bool:
        """Buffers grow in steps of 256 tokens: before a few of them, their size says little."""
        return self.done >= 1024

    def _finish(self) -> Warmed:
        cache, prefix = self._store.cache, self._prefix
        entry = cache.prepare_store(list(prefix.tokens), self._state)
        self._state = []
        if entry is None:
            raise RuntimeError("vllm-mlx's cache refused the state")
        self._store.check_room(entry.memory_bytes)
        self._store.keep(prefix, entry)
        new = len(prefix) - self._reused
        return Warmed(len(prefix), new, self._reused, entry.memory_bytes, source_of(new))


def _covers(state: list[Any], tokens: int) -> bool:
    """False where a layer says that it holds another number of tokens than the key of its entry."""
    offsets = (getattr(layer, "offset", tokens) for layer in state)
    return all(offset == tokens for offset in offsets if isinstance(offset, int))


def fetch_uncounted(cache: Any, tokens: list[int]) -> Any:
    """What vllm-mlx's cache has for some tokens; its statistics are of requests, and this is none."""
    stats = cache._stats
    counts = {name: getattr(stats, name) for name in ("hits", "misses", "tokens_saved")}
    try:
        return cache.fetch(tokens)
    finally:
        for name, count in counts.items():
            setattr(stats, name, count)
