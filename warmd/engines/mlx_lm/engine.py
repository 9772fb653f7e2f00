"""The embedded engine as the daemon sees it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from warmd.disk.status import DiskStatus
from warmd.engines.base import Effort, Foreseen, Held, Identity, LiveRequest, Prefix, Warmed
from warmd.engines.mlx_lm.desk import Job
from warmd.engines.mlx_lm.foresight import foresight
from warmd.engines.mlx_lm.orders import Declare, Drop, Warm, Worker
from warmd.engines.mlx_lm.room import EngineRoom, LoadedModel, ModelGoneError
from warmd.errors import RenderError
from warmd.memory.cost import Cost
from warmd.memory.readings import Memory
from warmd.prefix import find_prefix, request_messages
from warmd.prompts.document import Entry
from warmd.trigger import Signal

T = TypeVar("T")

LOOK_UP_TEXT = "Verify: does this request start warm?"
"""A user text unlike every probe that prefixes are cut with."""

REMOVAL_SECONDS = 1.0
"""How long what is to be warmed anew waits for the removal of its files; then it goes on behind its back."""


class MlxLmEngine:
    """An `Engine` over mlx-lm's server in this process.

    Args:
        room: Shared with the engine's thread.
        provider: mlx-lm's `ModelProvider`; read only on the engine's thread.
        loop: The daemon's event loop; the engine's thread leaves it messages, and waits for nothing.
    """

    def __init__(self, room: EngineRoom, provider: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._room = room
        self._loop = loop
        self._changed = Signal()
        self._worker = Worker(room, provider)
        self._declared_keys: frozenset[str] = frozenset()
        room.notify = lambda: self._call_soon(self._changed.set)

    @property
    def identity(self) -> Identity | None:
        """The loaded model, or None."""
        loaded = self._room.loaded
        return loaded.identity if loaded else None

    @property
    def sees_requests(self) -> bool:
        """All of them: they are served from this process."""
        return True

    def held(self) -> Mapping[str, Held]:
        """A snapshot of the warm store."""
        return self._room.store.held

    def memory(self) -> Memory:
        """One look at the memory, with what the warm store takes of it."""
        store = self._room.store
        return self._room.guard.memory(store.warm_bytes, store.checkpoint_bytes, self._room.ordinary_bytes())

    def cost(self) -> Cost | None:
        """As measured when the model was loaded."""
        return self._room.guard.cost

    def effort(self) -> Effort:
        """As the engine's thread has left it."""
        return Effort(*self._room.pace.computed, is_serving=self._room.is_serving)

    def disk(self) -> DiskStatus | None:
        """What is in the folder."""
        return self._room.keeper.status() if self._room.keeper is not None else None

    def server(self) -> None:
        """The engine is in this process."""

    def foresee(self, wanted: Sequence[tuple[Prefix, int]]) -> Sequence[Foreseen]:
        """By what is held, also in part, and what the files say of themselves that have been looked at."""
        seen = foresight(self._room.store, self._room.keeper, self._room.guard.cost)
        return seen.foresee([prefix for prefix, _ in wanted])

    def declare(self, prefixes: Collection[Prefix]) -> None:
        """Leave them for the engine's thread, which gets to it before any warming that is asked for later."""
        self._declared_keys = frozenset(prefix.key for prefix in prefixes)
        if self._room.keeper is not None:
            self._room.keeper.declare(prefixes)
        self._room.desk.submit(self._worker.job(Declare(tuple(prefixes))), is_quick=True)

    def follow(self, on_request: Callable[[LiveRequest], None]) -> None:
        """Pass each request on from the engine's thread."""
        self._room.on_request = lambda request: self._call_soon(functools.partial(on_request, request))

    async def changed(self) -> None:
        """Wait until a model was loaded or unloaded, or the engine's thread ended."""
        if self._room.death is None:
            await self._changed.wait()
        if self._room.death is not None:
            raise self._room.death

    async def render(self, entry: Entry) -> Prefix:
        """Cut the entry's prefix in a worker thread, on a tokenizer that serving does not use."""
        path = self._loaded().request_path
        return await anyio.to_thread.run_sync(find_prefix, entry, path, path.clock, abandon_on_cancel=True)

    async def decode(self, tokens: Sequence[int]) -> str:
        """The text of some token ids: for `warmd explain`, on the user's own terminal."""
        path = self._loaded().request_path
        return await anyio.to_thread.run_sync(path.decode, tokens, abandon_on_cancel=True)

    @property
    def template_arguments(self) -> Mapping[str, Any]:
        """What the server adds to the template arguments of every request."""
        loaded = self._room.loaded
        return loaded.request_path.template_arguments if loaded else {}

    async def warm(self, prefix: Prefix, on_progress: Callable[[int], None]) -> Warmed:
        """Load and prefill on the engine's thread, a file or a chunk whenever no live request waits."""
        warmed: Warmed = await self._run(self._worker.job(Warm(prefix), on_progress))
        return warmed

    async def look_up(self, entry: Entry, prefix: Prefix) -> int | None:
        """Render a request of the entry with another user text, and see what it would be served from."""
        path = self._loaded().request_path
        messages = request_messages(entry, LOOK_UP_TEXT)
        tools = list(entry.tools) if entry.tools is not None else None
        tokens = await anyio.to_thread.run_sync(
            path.encode, messages, tools, dict(entry.chat_template_kwargs), abandon_on_cancel=True
        )
        return await self._run(Job(lambda: self._matched(tokens)), is_quick=True)

    async def drop(self, keys: Collection[str]) -> None:
        """Free prefixes on the engine's thread, also what has been computed of those that were cancelled."""
        doubtful = self._declared_keys.intersection(keys)
        try:
            # A model that is gone has taken its prefixes along.
            with contextlib.suppress(ModelGoneError):
                await self._run(self._worker.job(Drop(tuple(keys))), is_quick=True)
        finally:
            # Still wanted, so it is to be computed anew. Not before: it would be written once more.
            if self._room.keeper is not None and doubtful:
                self._room.keeper.distrust(doubtful)
                with anyio.move_on_after(REMOVAL_SECONDS, shield=True):
                    await anyio.to_thread.run_sync(self._room.keeper.remove_doomed, abandon_on_cancel=True)

    def _matched(self, tokens: list[int]) -> int:
        found = self._room.store.match(tokens)
        return found.length if found else 0

    def _loaded(self) -> LoadedModel:
        loaded = self._room.loaded
        if loaded is None:
            raise RenderError("no model is loaded")
        return loaded

    async def _run(self, job: Job[T], *, is_quick: bool = False) -> T:
        """Leave a job for the engine's thread and wait for it; cancelling drops it at its next step."""
        done = anyio.Event()
        future = self._room.desk.submit(job, is_quick=is_quick)
        future.add_done_callback(lambda _: self._call_soon(done.set))
        try:
            await done.wait()
        except BaseException:
            future.cancel()
            raise
        return future.result()

    def _call_soon(self, function: Callable[[], None]) -> None:
        try:
            # Not through anyio's portal: it waits until the loop runs, and live requests would with it.
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            # The event loop has ended: there is nobody left to tell.
            return
