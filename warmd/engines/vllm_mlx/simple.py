"""Warm prefixes in the system prompt cache of vllm-mlx's simple engine, its default.

That engine keeps the state of the last few system prompts (4, or `VLLM_MLX_SYSTEM_KV_SLOTS`), keyed by a hash
of their text, and fills it only by answering a chat. So a warming is a chat of one token.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import anyio.to_thread

from warmd.engines.base import Foreseen, Held, NoRoomError, Prefix, Warmed, source_of
from warmd.engines.vllm_mlx.render import RequestPath, SystemPrefix
from warmd.engines.vllm_mlx.store import arguments_of
from warmd.prompts.document import Entry

ONLY_SYSTEM = "vllm-mlx's simple engine keeps system messages only (use --continuous-batching)"
UNFIT = "vllm-mlx's simple engine keeps no state for this model (use --continuous-batching)"


class SimpleStore:
    """A `Store` over the system prompts that one simple engine keeps.

    Args:
        engine: vllm-mlx's `SimpleEngine`, started.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._hashes: dict[str, str] = {}

    sees_requests = False

    def effort(self) -> None:
        """The engine does not tell."""

    def foresee(self, wanted: Sequence[tuple[Prefix, int]]) -> Sequence[Foreseen]:
        """Each system prompt is prefilled whole, whatever others begin with."""
        return [Foreseen(len(prefix)) for prefix, _ in wanted]

    def held(self) -> Mapping[str, Held]:
        """Those whose system prompt the engine has, or never will."""
        return {key: Held(self._bytes(name)) for key, name in self._kept().items()}

    async def cut(self, prefix: Prefix, entry: Entry, path: RequestPath) -> Prefix:
        """The engine cuts by itself, in text; that may be a token or two before ours."""
        system = await self._system_prefix(entry, path)
        if len(prefix) - 2 <= system.tokens < len(prefix):
            return replace(prefix, tokens=prefix.tokens[: system.tokens])
        return prefix

    async def warm(
        self, prefix: Prefix, entry: Entry, path: RequestPath, on_progress: Callable[[int], None]
    ) -> Warmed:
        """Have the engine answer with one token; see `Store.warm`."""
        system = await self._system_prefix(entry, path)
        size, name = len(prefix), _hash(system.text)
        if not system.tokens or not self._engine._supports_system_kv_cache:
            self._hashes[prefix.key] = ""
            return Warmed(size, 0, 0, 0, None, note=ONLY_SYSTEM if not system.tokens else UNFIT)
        self._check_room(name)
        reused = system.tokens if name in self._engine._system_kv_cache else 0
        call = await anyio.to_thread.run_sync(path.chat, *arguments_of(entry))
        stream = self._engine.stream_chat(**call, max_tokens=1, temperature=0.0)
        async with AsyncExitStack() as stack:
            if isinstance(stream, AsyncGenerator):
                stack.push_async_callback(stream.aclose)
            async for _ in stream:
                pass
        self._hashes[prefix.key] = name
        note, new = ONLY_SYSTEM if system.tokens < size else None, size - reused
        return Warmed(size, new, reused, self._bytes(name), source_of(new), note=note)

    async def look_up(self, entry: Entry, path: RequestPath) -> int:
        """See whether the engine has the state of the request's system prompt, whole."""
        system = await self._system_prefix(entry, path)
        kept = self._engine._system_kv_cache.get(_hash(system.text))
        return system.tokens if kept is not None and kept[1] == system.tokens else 0

    async def drop(self, keys: Collection[str]) -> None:
        """Forget prefixes, and free the state of each unless another has the same system prompt."""
        for key in keys:
            name = self._hashes.pop(key, None)
            if name and name not in self._hashes.values():
                self._engine._system_kv_cache.pop(name, None)

    def _kept(self) -> Mapping[str, str]:
        cache = self._engine._system_kv_cache
        return {key: name for key, name in self._hashes.items() if not name or name in cache}

    def _check_room(self, name: str) -> None:
        places = self._engine._system_kv_capacity
        if name not in self._hashes.values() and len(set(self._kept().values()) - {""}) >= places:
            raise NoRoomError(
                0,
                0,
                f"vllm-mlx keeps {places} system prompts (VLLM_MLX_SYSTEM_KV_SLOTS), all are warm entries",
            )

    async def _system_prefix(self, entry: Entry, path: RequestPath) -> SystemPrefix:
        return await anyio.to_thread.run_sync(
            path.system_prefix, *arguments_of(entry), abandon_on_cancel=True
        )

    def _bytes(self, name: str) -> int | None:
        kept = self._engine._system_kv_cache.get(name)
        return sum(array.nbytes for array in _arrays(kept[0])) if kept is not None else 0


def _arrays(state: Any) -> list[Any]:
    if isinstance(state, (list, tuple)):
        return [array for part in state for array in _arrays(part)]
    return [state] if hasattr(state, "nbytes") else []


def _hash(text: str) -> str:
    """As vllm-mlx names a system prompt."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
