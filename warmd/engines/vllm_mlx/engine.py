"""The daemon's `Engine` over whichever engine vllm-mlx's server has loaded."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from vllm_mlx import server
from vllm_mlx.engine.batched import BatchedEngine
from vllm_mlx.engine.simple import SimpleEngine

from warmd.disk.identity import digest_of, weights_of
from warmd.engines.base import (
    Effort,
    EngineDiedError,
    Foreseen,
    Held,
    Identity,
    LiveRequest,
    Prefix,
    Warmed,
    foresee_shared,
)
from warmd.engines.model_folder import model_folder
from warmd.engines.pace import Pace
from warmd.engines.vllm_mlx.batched import BatchedStore
from warmd.engines.vllm_mlx.render import RequestPath
from warmd.engines.vllm_mlx.simple import SimpleStore
from warmd.errors import RenderError
from warmd.prefix import find_prefix, request_messages
from warmd.prompts.document import Entry
from warmd.settings import WarmSettings

POLL_SECONDS = 1.0
"""How often to look whether another model is loaded, or something was pushed out or cleared."""
WAIT_SECONDS = 0.02
"""Between two tries of a chunk while requests come first."""
LOOK_UP_TEXT = "7 is a number."


class VllmMlxEngine:
    """Keeps prefixes warm in vllm-mlx's own cache. Made and used on the server's event loop.

    Args:
        find: The engine that is loaded now, or None.
        settings: How much is warmed at once, and what share it takes beside requests.
        poll_seconds: How often to look.
    """

    def __init__(
        self, find: Callable[[], Any], settings: WarmSettings, *, poll_seconds: float = POLL_SECONDS
    ) -> None:
        self._find = find
        self._settings = settings
        self._poll_seconds = poll_seconds
        self._loop = asyncio.get_running_loop()
        self._on_request: Callable[[LiveRequest], None] = lambda request: None
        self._generation = 0
        self._engine: Any = None
        # Not known before `changed` has read the model's files.
        self._fingerprint: str | None = None
        self._path: RequestPath | None = None
        self._store: BatchedStore | SimpleStore | None = None
        self._entries: dict[str, Entry] = {}
        # What the daemon takes to be held: something may be cleared before we look for the first time.
        self._believed: set[str] = set()

    @property
    def identity(self) -> Identity | None:
        """The model that vllm-mlx has loaded, under its name there, once its files are known."""
        self._refresh()
        if self._engine is None or self._fingerprint is None:
            return None
        problem = unwarmable(self._engine) if self._store is None else None
        return Identity(self._engine.model_name, self._generation, problem, self._fingerprint)

    @property
    def sees_requests(self) -> bool:
        """Those of the simple engine go past us."""
        return not isinstance(self._store, SimpleStore)

    def held(self) -> Mapping[str, Held]:
        """What is in vllm-mlx's cache now, of what was warmed."""
        self._refresh()
        store = self._store
        if isinstance(store, BatchedStore):
            return {key: Held(kept.kv_bytes) for key, kept in store.held().items()}
        return {key: Held(store.kv_bytes(key)) for key in store.held()} if store is not None else {}

    def memory(self) -> None:
        """The bound is that of vllm-mlx's own cache."""

    def cost(self) -> None:
        """Not known before something is prefilled."""

    def effort(self) -> Effort | None:
        """As the batched engine's thread has left it; the simple one tells nothing."""
        store = self._store
        if not isinstance(store, BatchedStore):
            return None
        return Effort(*store.pace.computed, is_serving=store.is_serving())

    def disk(self) -> None:
        """vllm-mlx writes its cache to disk by itself, when it stops."""

    def server(self) -> None:
        """The engine is in this process."""

    def foresee(self, wanted: Sequence[tuple[Prefix, int]]) -> Sequence[Foreseen]:
        """What is shared is taken to be there."""
        return foresee_shared(wanted)

    def declare(self, prefixes: Collection[Prefix]) -> None:
        """The cache finds by itself what prefixes share."""

    def follow(self, on_request: Callable[[LiveRequest], None]) -> None:
        """Pass on each request of the batched engine."""
        self._on_request = on_request

    async def changed(self) -> None:
        """Return when another engine is there, or something that was held is not.

        Raises:
            EngineDiedError: vllm-mlx's own loop has ended, and no request is answered any more.
        """
        before = self.identity
        await self._read_files()
        # vllm-mlx tells nobody when it loads, unloads, evicts or clears.
        while self.identity == before and self._believed <= self.held().keys():
            await anyio.sleep(self._poll_seconds)
            await self._read_files()
            if self._engine is not None and not self._engine.is_healthy():
                raise EngineDiedError("vllm-mlx's engine has ended: its own lines say why")
        self._believed &= self.held().keys()

    async def render(self, entry: Entry) -> Prefix:
        """Cut the entry's prefix in a worker thread, on a tokenizer that serving does not use."""
        path = self._loaded()
        prefix = await anyio.to_thread.run_sync(find_prefix, entry, path, path.clock, abandon_on_cancel=True)
        if isinstance(self._store, SimpleStore):
            # The engine cuts by itself, in text; that may be a token or two before ours.
            system = await self._system_prefix(path, entry)
            if len(prefix) - 2 <= system.tokens < len(prefix):
                prefix = replace(prefix, tokens=prefix.tokens[: system.tokens])
        self._entries[prefix.key] = entry
        return prefix

    async def decode(self, tokens: Sequence[int]) -> str:
        """The text of some token ids: for `warmd explain`, on the user's own terminal."""
        return await anyio.to_thread.run_sync(self._loaded().decode, tokens, abandon_on_cancel=True)

    @property
    def template_arguments(self) -> Mapping[str, Any]:
        """What the server adds to the template arguments of every request."""
        return dict(server._default_chat_template_kwargs or {})

    async def warm(self, prefix: Prefix, on_progress: Callable[[int], None]) -> Warmed:
        """Prefill between two steps of the engine, or have the simple engine answer with one token.

        Raises:
            NoRoomError: vllm-mlx's cache has no room for it beside the other warm prefixes.
            RenderError: The engine is gone.
        """
        engine, store, path = self._engine, self._store, self._loaded()
        if isinstance(store, SimpleStore):
            arguments = _arguments(self._entries[prefix.key])
            system = await anyio.to_thread.run_sync(path.system_prefix, *arguments)
            call = await anyio.to_thread.run_sync(path.chat, *arguments)
            return await store.warm(prefix, system, call)
        assert store is not None
        prefill = store.begin(prefix)
        while True:
            done = prefill.done
            warmed: Warmed | None = await self._on_worker(engine, prefill.step)
            if warmed is not None:
                return warmed
            on_progress(prefill.done)
            # Without a pause only where a chunk was computed, and there nobody waits.
            await anyio.sleep(0 if prefill.done > done else WAIT_SECONDS)

    async def look_up(self, entry: Entry, prefix: Prefix) -> int | None:
        """Render a request of the entry with another user text, and see what it would be served from."""
        self._believed.add(prefix.key)
        engine, store, path = self._engine, self._store, self._loaded()
        if isinstance(store, SimpleStore):
            return min(store.look_up(await self._system_prefix(path, entry)), len(prefix))
        assert store is not None
        tokens = await anyio.to_thread.run_sync(path.encode, *_arguments(entry))
        cached: int = await self._on_worker(engine, functools.partial(store.look_up, tokens))
        return min(cached, len(prefix))

    async def drop(self, keys: Collection[str]) -> None:
        """Free these prefixes."""
        self._believed.difference_update(keys)
        engine, store = self._engine, self._store
        if isinstance(store, BatchedStore) and engine is self._find():
            await self._on_worker(engine, functools.partial(store.drop, keys))
        elif isinstance(store, SimpleStore):
            for key in keys:
                store.drop(key)

    # --- inside ----------------------------------------------------------------------------------

    async def _read_files(self) -> None:
        """Find what tells a loaded model from others of its name, off the loop: a disk may be slow."""
        self._refresh()
        while self._engine is not None and self._fingerprint is None:
            engine = self._engine
            found = await anyio.to_thread.run_sync(fingerprint_of, engine.model_name, abandon_on_cancel=True)
            self._refresh()
            if engine is self._engine:
                self._fingerprint = found

    def _refresh(self) -> None:
        """Start over when vllm-mlx has another engine: it has another cache, too."""
        engine = self._find()
        if engine is not None and (not engine._loaded or engine.tokenizer is None):
            engine = None
        if engine is self._engine:
            return
        self._generation += 1
        self._engine, self._path, self._fingerprint = engine, None, None
        self._store = self._make_store(engine) if engine is not None and not unwarmable(engine) else None
        self._entries.clear()
        self._believed.clear()

    def _make_store(self, engine: Any) -> BatchedStore | SimpleStore:
        if isinstance(engine, SimpleEngine):
            return SimpleStore(engine)
        settings = self._settings
        pace = Pace(settings.chunk_tokens, settings.chunk_seconds, settings.live_share)
        return BatchedStore(engine, pace, self._tell)

    def _tell(self, request: LiveRequest) -> None:
        """From the engine's thread."""
        self._loop.call_soon_threadsafe(self._on_request, request)

    def _loaded(self) -> RequestPath:
        if self._engine is None or self._store is None:
            raise RenderError("no model is loaded")
        if self._path is None:
            self._path = RequestPath(self._engine)
        return self._path

    async def _system_prefix(self, path: RequestPath, entry: Entry) -> Any:
        return await anyio.to_thread.run_sync(path.system_prefix, *_arguments(entry), abandon_on_cancel=True)

    async def _on_worker(self, engine: Any, operation: Callable[[], Any]) -> Any:
        # A stopped engine would start a thread anew.
        if not engine._loaded or engine._generation_executor is None:
            raise RenderError("the model is gone")
        return await engine._run_on_generation_worker(operation)


def fingerprint_of(model: str) -> str:
    """Names a model's files by what is in them; empty where they are not found."""
    try:
        folder = model_folder(model, os.environ, Path.home())
        return digest_of({"model": weights_of(folder)}) if folder is not None else ""
    except OSError:
        return ""


def unwarmable(engine: Any) -> str | None:
    """Why nothing can be kept warm in an engine, in one line, or None."""
    if engine.is_mllm:
        return "the model is multimodal: warmd keeps nothing warm in vllm-mlx's engine for those"
    if isinstance(engine, SimpleEngine):
        return None
    if not isinstance(engine, BatchedEngine):
        return f"warmd does not know vllm-mlx's {type(engine).__name__}"
    if engine._engine.engine.scheduler.memory_aware_cache is None:
        return (
            "warmd needs vllm-mlx's memory-aware prefix cache: leave out --disable-prefix-cache, "
            "--no-memory-aware-cache and --use-paged-cache"
        )
    return None


def _arguments(entry: Entry) -> tuple[list[Any], list[Any] | None, dict[str, Any]]:
    tools = list(entry.tools) if entry.tools else None
    return request_messages(entry, LOOK_UP_TEXT), tools, dict(entry.chat_template_kwargs)
