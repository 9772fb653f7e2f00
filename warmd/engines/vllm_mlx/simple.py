"""Warm prefixes in the system prompt cache of vllm-mlx's simple engine, its default.

That engine keeps the state of the last few system prompts (4, or `VLLM_MLX_SYSTEM_KV_SLOTS`), keyed by a hash
of their text, and fills it only by answering a chat. So a warming is a chat of one token.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from typing import Any

from warmd.engines.base import NoRoomError, Prefix, Warmed, source_of
from warmd.engines.vllm_mlx.render import SystemPrefix

ONLY_SYSTEM = "vllm-mlx's simple engine keeps system messages only (use --continuous-batching)"
UNFIT = "vllm-mlx's simple engine keeps no state for this model (use --continuous-batching)"


class SimpleStore:
    """The warm prefixes of one simple engine.

    Args:
        engine: vllm-mlx's `SimpleEngine`, started.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._hashes: dict[str, str] = {}

    def held(self) -> Mapping[str, str]:
        """Those whose system prompt the engine has, or never will."""
        cache = self._engine._system_kv_cache
        return {key: name for key, name in self._hashes.items() if not name or name in cache}

    async def warm(self, prefix: Prefix, system: SystemPrefix, call: dict[str, Any]) -> Warmed:
        """Have the engine answer with one token.

        Raises:
            NoRoomError: It has no place for one more.
            Exception: Whatever the engine raises.
        """
        size, name = len(prefix), _hash(system.text)
        if not system.tokens or not self._engine._supports_system_kv_cache:
            self._hashes[prefix.key] = ""
            return Warmed(size, 0, 0, 0, None, note=ONLY_SYSTEM if not system.tokens else UNFIT)
        places = self._engine._system_kv_capacity
        if name not in self._hashes.values() and len(set(self.held().values()) - {""}) >= places:
            raise NoRoomError(
                0,
                0,
                f"vllm-mlx keeps {places} system prompts (VLLM_MLX_SYSTEM_KV_SLOTS), all are warm entries",
            )
        reused = system.tokens if name in self._engine._system_kv_cache else 0
        stream = self._engine.stream_chat(**call, max_tokens=1, temperature=0.0)
        async with AsyncExitStack() as stack:
            if isinstance(stream, AsyncGenerator):
                stack.push_async_callback(stream.aclose)
            async for _ in stream:
                pass
        self._hashes[prefix.key] = name
        note, new = ONLY_SYSTEM if system.tokens < size else None, size - reused
        return Warmed(size, new, reused, self._bytes(name), source_of(new), note=note)

    def look_up(self, system: SystemPrefix) -> int:
        """How many tokens of a request the engine would not prefill."""
        kept = self._engine._system_kv_cache.get(_hash(system.text))
        return system.tokens if kept is not None and kept[1] == system.tokens else 0

    def drop(self, key: str) -> None:
        """Forget a prefix, and free its state unless another has the same system prompt."""
        name = self._hashes.pop(key, None)
        if name and name not in self._hashes.values():
            self._engine._system_kv_cache.pop(name, None)

    def kv_bytes(self, key: str) -> int | None:
        """Bytes of its state."""
        return self._bytes(self._hashes.get(key, ""))

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
