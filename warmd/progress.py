"""How fast a warming goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from warmd.engines.base import Effort


@dataclass(frozen=True, slots=True)
class _Mark:
    """Where it stood at the end of a chunk."""

    done: int
    at: float
    effort: Effort | None

    def seconds_to(self, later: _Mark) -> float:
        """What came in between took so long, as far as can be told without what live requests took."""
        if self.effort is None or later.effort is None or later.effort.tokens == self.effort.tokens:
            # Read from disk, for example: nothing was computed.
            return later.at - self.at
        return later.effort.seconds - self.effort.seconds


class Progress:
    """Measures tokens a second, from the end of the first chunk on: what was there before it took no time.

    The time of live requests is left out where the engine tells what computing takes.

    Args:
        effort: What warming has taken so far, that of other prefixes at the same time included; None where
            the engine does not tell.
        clock: Seconds.
    """

    def __init__(
        self,
        effort: Callable[[], Effort | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._effort = effort
        self._clock = clock
        self._last: _Mark | None = None
        self._tokens = 0
        self._seconds = 0.0

    def note(self, done: int) -> None:
        """So many tokens are done now."""
        mark = _Mark(done, self._clock(), self._effort())
        if self._last is not None:
            self._tokens += done - self._last.done
            self._seconds += self._last.seconds_to(mark)
        self._last = mark

    @property
    def rate(self) -> float | None:
        """Tokens a second; None until there are two chunks to tell it by."""
        return self._tokens / self._seconds if self._tokens > 0 and self._seconds > 0 else None
