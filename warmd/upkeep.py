"""What a process of ours sees to beside its daemon: failed starts are forgotten, repeated errors told."""

from __future__ import annotations

import math
from pathlib import Path

import anyio
import anyio.to_thread

from warmd.crash.starts import forget_failed_starts
from warmd.events import Event
from warmd.logs import Log
from warmd.repeats import REPORT_SECONDS


class Upkeep:
    """The upkeep of one run of a server. Made before the event loop runs, if need be.

    Args:
        log: Where events go.
        state: The state folder.
        patience: Seconds after which a server counts as started, also where its daemon is not ready.
    """

    def __init__(self, log: Log, state: Path, patience: float = math.inf) -> None:
        self._log = log
        self._state = state
        self._patience = patience
        self._ready = anyio.Event()

    def emit(self, event: Event) -> None:
        """Log an event of the daemon's, and note when it is ready."""
        self._log(event)
        if event.name == "daemon.ready":
            self._ready.set()

    async def run(self) -> None:
        """See to it until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._summarise)
            tasks.start_soon(self._forget_failed_starts)

    async def _summarise(self) -> None:
        """Tell of repeated errors also when nothing else is logged."""
        while True:
            await anyio.sleep(REPORT_SECONDS)
            self._log.summarise()

    async def _forget_failed_starts(self) -> None:
        with anyio.move_on_after(self._patience):
            await self._ready.wait()
        await anyio.to_thread.run_sync(forget_failed_starts, self._state, abandon_on_cancel=True)
