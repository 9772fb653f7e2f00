"""The warm prefixes of a batched engine, as the event loop sees them: the work is done on its thread."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from warmd.engines.base import Effort, Foreseen, Held, LiveRequest, Prefix, Warmed, foresee_shared
from warmd.engines.pace import Pace
from warmd.engines.vllm_mlx.batched import BatchedCache
from warmd.engines.vllm_mlx.render import RequestPath
from warmd.engines.vllm_mlx.store import arguments_of
from warmd.errors import RenderError
from warmd.prompts.document import Entry

T = TypeVar("T")

WAIT_SECONDS = 0.02
"""Between two tries of a chunk while requests come first."""


class BatchedStore:
    """A `Store` over a `BatchedCache`.

    Args:
        engine: vllm-mlx's `BatchedEngine`, started.
        pace: Sizes chunks, and grants warming its share beside requests.
        on_request: Called on the engine's thread for each live request.
    """

    sees_requests = True

    def __init__(self, engine: Any, pace: Pace, on_request: Callable[[LiveRequest], None]) -> None:
        self._engine = engine
        self._cache = BatchedCache(engine, pace, on_request)

    def effort(self) -> Effort:
        """As the engine's thread has left it."""
        return Effort(*self._cache.pace.computed, is_serving=self._cache.is_serving())

    def foresee(self, wanted: Sequence[tuple[Prefix, int]]) -> Sequence[Foreseen]:
        """What is shared is taken to be there."""
        return foresee_shared(wanted)

    def held(self) -> Mapping[str, Held]:
        """What is in vllm-mlx's cache, or is put back before a request is looked up."""
        return {key: Held(kept.kv_bytes) for key, kept in self._cache.held().items()}

    async def cut(self, prefix: Prefix, entry: Entry, path: RequestPath) -> Prefix:
        """The cache is keyed by tokens, and any number of them will do."""
        return prefix

    async def warm(
        self, prefix: Prefix, entry: Entry, path: RequestPath, on_progress: Callable[[int], None]
    ) -> Warmed:
        """Prefill between two steps of the engine; see `Store.warm`."""
        prefill = self._cache.begin(prefix)
        while True:
            done = prefill.done
            warmed = await self._on_worker(prefill.step)
            if warmed is not None:
                return warmed
            on_progress(prefill.done)
            # Without a pause only where a chunk was computed, and there nobody waits.
            await anyio.sleep(0 if prefill.done > done else WAIT_SECONDS)

    async def look_up(self, entry: Entry, path: RequestPath) -> int:
        """Render a request with another user text, and see what the cache has for it."""
        tokens = await anyio.to_thread.run_sync(path.encode, *arguments_of(entry))
        return await self._on_worker(functools.partial(self._cache.look_up, tokens))

    async def drop(self, keys: Collection[str]) -> None:
        """Free prefixes; with the engine all of them have gone."""
        if self._is_there():
            await self._on_worker(functools.partial(self._cache.drop, keys))

    def _is_there(self) -> bool:
        # A stopped engine would start a thread anew.
        return self._engine._loaded and self._engine._generation_executor is not None

    async def _on_worker(self, operation: Callable[[], T]) -> T:
        if not self._is_there():
            raise RenderError("the model is gone")
        done: T = await self._engine._run_on_generation_worker(operation)
        return done
