"""The daemon and the engine in this process, where their memory can be looked at and their limit changed."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import anyio
import anyio.to_thread
import mlx.core as mx
from mlx_lm import server

from tests import patience
from warmd.daemon import Daemon
from warmd.engines.mlx_lm.engine import MlxLmEngine
from warmd.engines.mlx_lm.generator import WarmingResponseGenerator, WatchedModelProvider
from warmd.engines.mlx_lm.guard import Guard
from warmd.engines.mlx_lm.prompt_cache import WarmPromptCache
from warmd.engines.mlx_lm.room import EngineRoom
from warmd.engines.mlx_lm.store import WarmStore
from warmd.engines.pace import Pace
from warmd.events import Event
from warmd.memory.readings import Limit, Reading
from warmd.settings import MemorySettings, Settings, WarmSettings, WatchSettings

LOOK = 0.2
"""Seconds between two looks at the memory while idle."""
UNLIMITED = 1 << 50
CHUNK = 256
"""Tokens of a chunk at most, however quickly they are computed: entries are to take several."""


class CountersMeter:
    """Reads mlx's counters only: a Python process holds much besides arrays, which differs by machine."""

    def read(self) -> Reading:
        """Look now."""
        return Reading(mx.get_active_memory(), mx.get_cache_memory(), 0, UNLIMITED, 0, None, 1)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One computed chunk.

    Attributes:
        began: By the monotonic clock.
        seconds: How long it took.
        taken: Active bytes and the pool after it, which is the most that they were in it.
    """

    began: float
    seconds: float
    taken: int


class RecordingGuard(Guard):
    """A guard that goes by mlx's counters, and notes every chunk and the most memory that was taken.

    Attributes:
        chunks: All so far.
        in_chunk: Called as each chunk begins, with the tokens of the state after it.
        most: Active bytes and the pool together, since the limit was set.
    """

    def __init__(self, size: int = UNLIMITED) -> None:
        super().__init__(Limit(size, 0), CountersMeter())
        self.chunks: list[Chunk] = []
        self.in_chunk: Callable[[int], None] = lambda end: None
        self.most = 0

    def set_limit(self, size: int) -> None:
        """Change the limit."""
        self.limit = Limit(size, 0)
        self.most = 0

    def note(self) -> int:
        """Take note of what is taken now."""
        taken: int = mx.get_active_memory() + mx.get_cache_memory()
        self.most = max(self.most, taken)
        return taken

    @contextmanager
    def measuring(self, size: int, end: int) -> Iterator[None]:
        """As its base does."""
        began = time.monotonic()
        self.in_chunk(end)
        with super().measuring(size, end):
            yield
        self.chunks.append(Chunk(began, time.monotonic() - began, self.note()))


class Told(NamedTuple):
    """Something that the daemon told.

    Attributes:
        at: By the monotonic clock.
        busy: CPU seconds of the process until then.
        event: What.
    """

    at: float
    busy: float
    event: Event


class Inside:
    """A daemon on a real engine, without an HTTP server.

    Attributes:
        told: All that the daemon told.
        room: Shared with the engine's thread.
    """

    def __init__(self, engine: MlxLmEngine, room: EngineRoom, path: Path, settings: Settings) -> None:
        self.daemon = Daemon(engine, path, settings, emit=self._emit)
        self.room = room
        self.store = room.store
        self.told: list[Told] = []
        self._news = anyio.Event()

    def _emit(self, event: Event) -> None:
        self.told.append(Told(time.monotonic(), time.process_time(), event))
        self._news.set()

    def count(self, *states: str) -> int:
        """Entries in one of these states."""
        return sum(entry.state in states for entry in self.daemon.statistics().entries)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        with anyio.fail_after(patience.PATIENCE):
            while not holds():
                self._news = anyio.Event()
                with anyio.move_on_after(LOOK):
                    await self._news.wait()


@asynccontextmanager
async def running(
    model: Path, path: Path, guard: RecordingGuard, warm: WarmSettings | None = None
) -> AsyncIterator[Inside]:
    """A daemon for a warm-prompts file, with the engine's thread of `warmd serve` behind it."""
    watch, memory = WatchSettings(settle=0.02, ceiling=0.1), MemorySettings(look=LOOK)
    settings = Settings(watch=watch, memory=memory, warm=warm or WarmSettings())
    room = EngineRoom(WarmStore(), guard, Pace(CHUNK, 60.0))
    provider = _make_provider(model, room)
    with _noting(guard):
        async with anyio.create_task_group() as tasks:
            engine = MlxLmEngine(room, provider, asyncio.get_running_loop())
            inside = Inside(engine, room, path, settings)
            generator = WarmingResponseGenerator(provider, WarmPromptCache(room.store, 10), room)
            try:
                tasks.start_soon(inside.daemon.run)
                yield inside
            finally:
                tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(generator.stop, patience.PATIENCE)


def _make_provider(model: Path, room: EngineRoom) -> Any:
    """The model provider that mlx-lm's main makes of its flags."""
    run = mock.Mock()
    with (
        mock.patch.object(server, "ModelProvider", functools.partial(WatchedModelProvider, room=room)),
        mock.patch.object(server, "run", run),
        mock.patch("sys.argv", ["server", "--model", str(model), "--log-level", "ERROR"]),
    ):
        server.main()
    return run.call_args.args[2]


@contextmanager
def _noting(guard: RecordingGuard) -> Iterator[None]:
    """Take note of the memory before each time that mlx gives its pool back.

    Active bytes and the pool together never shrink otherwise: that, and the ends of chunks, are their peaks.
    """
    clear = mx.clear_cache

    def note_and_clear() -> None:
        guard.note()
        clear()

    with mock.patch.object(mx, "clear_cache", note_and_clear):
        yield
