"""The daemon's `Engine` over whichever engine vllm-mlx's server has loaded."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Mapping, Sequence
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
from warmd.engines.vllm_mlx.batched_store import BatchedStore
from warmd.engines.vllm_mlx.render import RequestPath
from warmd.engines.vllm_mlx.simple import SimpleStore
from warmd.engines.vllm_mlx.store import Store
from warmd.errors import RenderError
from warmd.prefix import find_prefix
from warmd.prompts.document import Entry
from warmd.settings import WarmSettings

POLL_SECONDS = 1.0
"""How often to look whether another model is loaded, or something was pushed out or cleared."""


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
        self._store: Store | None = None
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
        """Those of the simple engine, and of one in which nothing is kept, go past us."""
        # Where none is loaded there are no requests.
        return self._store.sees_requests if self._store is not None else self._engine is None

    def held(self) -> Mapping[str, Held]:
        """What is in vllm-mlx's cache now, of what was warmed."""
        self._refresh()
        return self._store.held() if self._store is not None else {}

    def memory(self) -> None:
        """The bound is that of vllm-mlx's own cache."""

    def cost(self) -> None:
        """Not known before something is prefilled."""

    def effort(self) -> Effort | None:
        """As the batched engine's thread has left it; the simple one tells nothing."""
        return self._store.effort() if self._store is not None else None

    def disk(self) -> None:
        """vllm-mlx writes its cache to disk by itself, when it stops."""

    def server(self) -> None:
        """The engine is in this process."""

    def foresee(self, wanted: Sequence[tuple[Prefix, int]]) -> Sequence[Foreseen]:
        """As the engine goes on from what is there."""
        return self._store.foresee(wanted) if self._store is not None else foresee_shared(wanted)

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
        store, path = self._loaded()
        prefix = await anyio.to_thread.run_sync(find_prefix, entry, path, path.clock, abandon_on_cancel=True)
        prefix = await store.cut(prefix, entry, path)
        self._entries[prefix.key] = entry
        return prefix

    async def decode(self, tokens: Sequence[int]) -> str:
        """The text of some token ids: for `warmd explain`, on the user's own terminal."""
        return await anyio.to_thread.run_sync(self._loaded()[1].decode, tokens, abandon_on_cancel=True)

    @property
    def template_arguments(self) -> Mapping[str, Any]:
        """What the server adds to the template arguments of every request."""
        return dict(server._default_chat_template_kwargs or {})

    async def warm(self, prefix: Prefix, on_progress: Callable[[int], None]) -> Warmed:
        """Get it into vllm-mlx's cache; see `Store.warm`."""
        store, path = self._loaded()
        return await store.warm(prefix, self._entries[prefix.key], path, on_progress)

    async def look_up(self, entry: Entry, prefix: Prefix) -> int | None:
        """See what a request of the entry would be served from."""
        self._believed.add(prefix.key)
        store, path = self._loaded()
        return min(await store.look_up(entry, path), len(prefix))

    async def drop(self, keys: Collection[str]) -> None:
        """Free these prefixes."""
        self._believed.difference_update(keys)
        if self._store is not None:
            await self._store.drop(keys)

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

    def _make_store(self, engine: Any) -> Store:
        if isinstance(engine, SimpleEngine):
            return SimpleStore(engine)
        settings = self._settings
        pace = Pace(settings.chunk_tokens, settings.chunk_seconds, settings.live_share)
        return BatchedStore(engine, pace, self._tell)

    def _tell(self, request: LiveRequest) -> None:
        """From the engine's thread."""
        self._loop.call_soon_threadsafe(self._on_request, request)

    def _loaded(self) -> tuple[Store, RequestPath]:
        if self._engine is None or self._store is None:
            raise RenderError("no model is loaded")
        if self._path is None:
            self._path = RequestPath(self._engine)
        return self._store, self._path


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
