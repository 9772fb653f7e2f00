"""Watches over one warming: whether live requests leave it any time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
from anyio.abc import TaskGroup

from warmd.engines.base import Effort, Engine
from warmd.ledger import Slot
from warmd.settings import WarmSettings
from warmd.tell import Teller

LOOK_SECONDS = 5.0
"""How often to look."""


class Vigil:
    """Looks at a warming now and then, and leaves it alone.

    Args:
        slot: What is being warmed.
        engine: Where.
        tell: Receives what is to be said.
        settings: How long it may take.
        clock: Seconds.
    """

    def __init__(
        self,
        slot: Slot,
        engine: Engine,
        tell: Teller,
        settings: WarmSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slot = slot
        self._engine = engine
        self._tell = tell
        self._settings = settings
        self._clock = clock
        self._moved_at = clock()
        self._mark: tuple[int, int] | None = None

    @contextmanager
    def over(self, tasks: TaskGroup) -> Iterator[None]:
        """Watch while the block runs."""
        scope = anyio.CancelScope()
        tasks.start_soon(self._watch, scope)
        try:
            yield
        finally:
            scope.cancel()
            self._slot.waits = None

    async def _watch(self, scope: anyio.CancelScope) -> None:
        with scope:
            while True:
                await anyio.sleep(min(LOOK_SECONDS, self._settings.max_pause / 4))
                effort = self._engine.effort()
                if effort is not None:
                    self.look(effort)

    def look(self, effort: Effort) -> None:
        """See how it stands, given what the engine has done so far."""
        slot, now = self._slot, self._clock()
        # Another warming that goes on keeps this one waiting, too.
        mark = slot.done_tokens, effort.tokens
        if mark != self._mark:
            self._mark, self._moved_at, slot.waits = mark, now, None
        elif slot.waits is None and effort.is_serving and now - self._moved_at >= self._settings.max_pause:
            slot.waits = (
                f"live requests have left no time for it for {self._settings.max_pause:g} s or more; "
                "it goes on when they do"
            )
            self._tell.waits(slot, slot.waits)
