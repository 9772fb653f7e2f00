"""Holds warm prefixes beside mlx-lm's own prompt cache. Everything here runs on the engine's thread.

One whole cache for each prefix: simple, and right for every cache class, since a request only ever continues
from the exact end of a prefix. What is held is never written to again, and never handed out: a request gets a
deep copy, which shares the buffers until its first write.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from mlx_lm.models.cache import LRUPromptCache

from warmd.engines.base import Held, Prefix


@dataclass(slots=True)
class WarmState:
    """One held prefix: the evaluated cache of every layer, and how many requests began from it."""

    prefix: Prefix
    cache: list[Any]
    kv_bytes: int
    hits: int = 0


class WarmStore:
    """Warm prefixes of the loaded model."""

    def __init__(self) -> None:
        self._states: dict[str, WarmState] = {}
        self.held: Mapping[str, Held] = MappingProxyType({})
        """A snapshot that other threads may read: replaced at each change, never changed."""

    def insert(self, prefix: Prefix, cache: list[Any]) -> int:
        """Take over a cache that holds exactly the prefix and that nobody else will touch.

        Returns:
            Bytes held for it.
        """
        kv_bytes = sum(int(layer.nbytes) for layer in cache)
        self._states[prefix.key] = WarmState(prefix, cache, kv_bytes)
        self._publish()
        return kv_bytes

    def match(self, tokens: Sequence[int]) -> WarmState | None:
        """The longest prefix that `tokens` begins with and goes on from: at least one token is left over."""
        found: WarmState | None = None
        for state in self._states.values():
            size = len(state.prefix)
            if size < len(tokens) and (found is None or size > len(found.prefix)):
                # Comparing the ends first settles most mismatches without copying anything.
                ids = state.prefix.tokens
                if ids[-1] == tokens[size - 1] and ids == tuple(tokens[:size]):
                    found = state
        return found

    def copy_of(self, state: WarmState) -> list[Any]:
        """A fresh cache that its user may change."""
        return copy.deepcopy(state.cache)

    def record_hit(self, state: WarmState) -> None:
        """A live request begins from this state."""
        state.hits += 1
        self._publish()

    def drop(self, keys: Collection[str]) -> None:
        """Free prefixes; unknown keys are ignored."""
        for key in keys:
            self._states.pop(key, None)
        self._publish()

    def clear(self) -> None:
        """Free everything."""
        self.drop(list(self._states))

    def _publish(self) -> None:
        self.held = MappingProxyType(
            {key: Held(state.kv_bytes, state.hits) for key, state in self._states.items()}
        )


class WarmPromptCache(LRUPromptCache):  # type: ignore[misc] # mlx-lm has no type information
    """mlx-lm's prompt cache, which also answers from the warm store.

    Ordinary traffic goes into and out of the LRU cache as before and cannot touch the warm store; warm
    prefixes take no place in the LRU cache.

    Args:
        store: The warm prefixes.
        model_key: Tells which model the store belongs to now.
        max_size: Entries of the LRU cache.
    """

    def __init__(self, store: WarmStore, max_size: int) -> None:
        super().__init__(max_size)
        self._store = store
        self.model_key: Any = None
        """The model that the store's prefixes belong to."""

    def fetch_nearest_cache(self, model: Any, tokens: list[int]) -> tuple[list[Any] | None, list[int]]:
        """The longer of the warm match and the LRU cache's, as a fresh object, and the tokens that are left.

        The rest is never empty when `tokens` is not: the batch generator refuses an empty prompt, and the
        refusal would end its thread.
        """
        cache, rest = self._fetch_ordinary(model, tokens)
        state = self._store.match(tokens) if model == self.model_key else None
        if state is None or len(tokens) - len(rest) > len(state.prefix):
            return cache, rest
        self._store.record_hit(state)
        return self._store.copy_of(state), tokens[len(state.prefix) :]

    def _fetch_ordinary(self, model: Any, tokens: list[int]) -> tuple[list[Any] | None, list[int]]:
        cache, rest = super().fetch_nearest_cache(model, tokens)
        if rest or not tokens:
            return cache, rest
        if len(tokens) == 1:
            return None, tokens
        # An exact hit leaves nothing to compute the first answer token from: match one token less.
        cache, rest = super().fetch_nearest_cache(model, tokens[:-1])
        return cache, rest + tokens[-1:]
