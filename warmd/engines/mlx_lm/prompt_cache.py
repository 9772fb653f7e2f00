"""mlx-lm's prompt cache, answering from the warm store as well. On the engine's thread only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlx_lm.models.cache import LRUPromptCache

from warmd.engines.base import Chat, LiveRequest
from warmd.engines.mlx_lm.store import WarmStore
from warmd.radix import pack


class WarmPromptCache(LRUPromptCache):  # type: ignore[misc] # mlx-lm has no type information
    """mlx-lm's prompt cache, which also answers from the warm store.

    Ordinary traffic goes into and out of the LRU cache as before and cannot touch the warm store; warm
    prefixes take no place in the LRU cache.

    Args:
        store: The warm prefixes.
        model_key: Tells which model the store belongs to now.
        max_size: Entries of the LRU cache.
        on_request: Called with every request.
        agree: True when every rank has the same number; one process alone always agrees.
    """

    def __init__(
        self,
        store: WarmStore,
        max_size: int,
        on_request: Callable[[LiveRequest], None] = lambda request: None,
        agree: Callable[[int], bool] = lambda number: True,
    ) -> None:
        super().__init__(max_size)
        self._agree = agree
        self._store = store
        self._on_request = on_request
        self.chat: Chat | None = None
        """What the request that comes next was before it became tokens."""
        self.model_key: Any = None
        """The model that the store's prefixes belong to."""

    def fetch_nearest_cache(self, model: Any, tokens: list[int]) -> tuple[list[Any] | None, list[int]]:
        """The longer of the warm match and the LRU cache's, as a fresh object, and the tokens that are left.

        A warm match may be a part of a prefix: any beginning of it where the state can be cut, else up to the
        last snapshot before the request parts from it.

        The rest is never empty when `tokens` is not: the batch generator refuses an empty prompt, and the
        refusal would end its thread.
        """
        packed = pack(tokens)
        cache, rest = self._fetch_ordinary(model, tokens)
        if not self._agree(len(rest)):
            # Each rank may have let go of others, by their bytes.
            cache, rest = None, tokens
        found = None
        if model == self.model_key:
            self._store.offer(packed)
            found = self._store.match(packed)
        if found is not None and found.length < len(tokens) - len(rest):
            found = None
        if not self._store.is_common(found.length if found is not None else 0):
            found = None
        if found is not None:
            cache, rest = found.copy(len(tokens) - found.length), tokens[found.length :]
        chat, self.chat = self.chat, None
        warm = found.length if found is not None else 0
        self._on_request(LiveRequest(packed, len(tokens) - len(rest), warm, chat))
        return cache, rest

    def _fetch_ordinary(self, model: Any, tokens: list[int]) -> tuple[list[Any] | None, list[int]]:
        cache, rest = super().fetch_nearest_cache(model, tokens)
        if rest or not tokens:
            return cache, rest
        if len(tokens) == 1:
            return None, tokens
        # An exact hit leaves nothing to compute the first answer token from: match one token less.
        cache, rest = super().fetch_nearest_cache(model, tokens[:-1])
        return cache, rest + tokens[-1:]
