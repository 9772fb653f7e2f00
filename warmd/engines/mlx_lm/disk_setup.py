"""Sets up the disk side of the engine from the settings."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from warmd.disk.bounds import parse_max_bytes
from warmd.disk.files import Files
from warmd.disk.place import store_folder
from warmd.disk.tell import Tell
from warmd.disk.writer import WriterSettings
from warmd.engines.mlx_lm.keeper import Keeper
from warmd.events import Emit, Event
from warmd.memory.size import parse_size
from warmd.settings import StoreSettings


class EmitSoon:
    """Passes events from any thread to one that is called on an event loop, which may come later."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Event] = []
        self._call: Callable[[Event], None] | None = None

    def follow(self, loop: asyncio.AbstractEventLoop, emit: Emit) -> None:
        """Emit on a loop, what has been waiting first."""

        def call(event: Event) -> None:
            try:
                loop.call_soon_threadsafe(emit, event)
            except RuntimeError:
                # The loop has ended: there is nobody left to tell.
                return

        with self._lock:
            self._call = call
            waiting, self._waiting = self._waiting, []
        for event in waiting:
            call(event)

    def __call__(self, event: Event) -> None:
        """Emit one as soon as that is possible."""
        with self._lock:
            if self._call is None:
                self._waiting.append(event)
                return
        self._call(event)


def open_keeper(settings: StoreSettings, emit: Emit) -> Keeper | None:
    """The keeper that the settings ask for; None where nothing is to be written. Nothing is touched yet."""
    if not settings.enabled:
        return None
    bounds = WriterSettings(
        parse_max_bytes(settings.max_bytes), settings.grace, parse_size(settings.write_rate)
    )
    return Keeper(Files(store_folder(settings)), bounds, Tell(emit), is_checked=settings.check)
