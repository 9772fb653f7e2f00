"""Watches over one warming: whether live requests leave it any time, how fast it goes, how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import anyio
from anyio.abc import TaskGroup

from warmd.engines.base import Effort, Engine
from warmd.errors import WarmdError
from warmd.ledger import Slot
from warmd.settings import WarmSettings
from warmd.tell import Teller

LOOK_SECONDS = 5.0
"""How often to look."""
FAR_SLOWER = 10
"""Times; other lengths, positions and chunks make less of a difference."""
WORTH_TELLING = 10.0
"""Seconds of computing: less does not tell, and hurts nobody."""
FEWEST_TOKENS = 64
"""Fewer may all have been held up by one thing."""


class TookTooLongError(WarmdError):
    """A warming was stopped as its time was over."""

    def __init__(self, seconds: float, done: int, tokens: int | None) -> None:
        where = f", and had come to {done:,} of {tokens:,} tokens" if tokens and done else ""
        super().__init__(f"it took more than {seconds:g} s ([warm] timeout){where}")


class Vigil:
    """Looks at a warming now and then, and leaves it alone.

    Args:
        slot: What is being warmed.
        engine: Where.
        tell: Receives what is to be said.
        settings: How long it may take.
        best_rate: The best tokens per second of this model on this machine so far, or None.
        clock: Seconds.
    """

    def __init__(
        self,
        slot: Slot,
        engine: Engine,
        tell: Teller,
        settings: WarmSettings,
        best_rate: Callable[[], float | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slot = slot
        self._engine = engine
        self._tell = tell
        self._settings = settings
        self._best_rate = best_rate
        self._clock = clock
        self._moved_at = clock()
        self._mark: tuple[int, int] | None = None
        self._before = engine.effort()
        self._first: Effort | None = None
        self._is_slow = False

    @contextmanager
    def over(self, tasks: TaskGroup, warming: anyio.CancelScope) -> Iterator[None]:
        """Watch while the block runs.

        Args:
            tasks: Where to watch.
            warming: The scope of the block. Once it is cancelled there is nothing more to be said, however
                long the block takes to end.

        Raises:
            TookTooLongError: It was cancelled as its time was over.
        """
        scope = anyio.CancelScope()
        try:
            with anyio.move_on_after(self._settings.timeout) as limit:
                tasks.start_soon(self._watch, scope, (warming, limit))
                yield
                # It may have taken less than there is between two looks; what it waited for is over.
                if (effort := self._engine.effort()) is not None:
                    self._look_at_rate(effort)
            if limit.cancelled_caught:
                slot = self._slot
                raise TookTooLongError(self._settings.timeout, slot.done_tokens, slot.tokens)
        finally:
            scope.cancel()
            self._slot.waits = None

    async def _watch(self, scope: anyio.CancelScope, watched: Sequence[anyio.CancelScope]) -> None:
        with scope:
            while True:
                await anyio.sleep(min(LOOK_SECONDS, self._settings.max_pause / 4))
                if any(each.cancel_called for each in watched):
                    return
                self.look()

    def look(self) -> None:
        """See how it stands, given what the engine has done so far."""
        effort = self._engine.effort()
        if effort is not None:
            self._look_at_rate(effort)
            self._look_at_pause(effort)

    def _look_at_rate(self, effort: Effort) -> None:
        """Tell once when computing goes far slower than it has gone; live requests' time is not in it."""
        if self._first is None:
            # The first chunk may have waited for what is needed only once.
            self._first = effort if self._before and effort.tokens > self._before.tokens else None
            return
        tokens, seconds = effort.tokens - self._first.tokens, effort.seconds - self._first.seconds
        # After an edit near its end all of it is at late positions, which take longer.
        is_telling = tokens >= max(FEWEST_TOKENS, self._slot.done_tokens / 2) and seconds >= WORTH_TELLING
        best = self._best_rate() if is_telling and not self._is_slow else None
        if best is not None and FAR_SLOWER * tokens < best * seconds:
            self._is_slow = True
            self._tell.slow(self._slot, tokens / seconds, best)

    def _look_at_pause(self, effort: Effort) -> None:
        """Tell once each time that requests have left no time for it for long."""
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
