"""How much is warmed at once: by time, so that a live request never waits long. On the engine's thread."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

FIRST_TOKENS = 32
"""The first chunk of a model, before its rate is known."""
MIN_TOKENS = 8
"""A smaller chunk costs about as much as this one."""
AIM = 0.8
"""Of the time that a chunk may take: no two take the same, and half of those that aim at it take more."""
MIN_SECONDS = 0.02
"""Live requests are not interrupted for less."""


class Pace:
    """Sizes chunks by the measured rate, and grants warming a share of the time in which requests decode.

    Args:
        max_tokens: Of one chunk.
        seconds: That one chunk may take.
        live_share: Of the time in which requests only decode, 0 to 0.9.
        clock: Seconds.

    Attributes:
        computed: Tokens of all chunks so far, and the seconds that these took.
    """

    def __init__(
        self,
        max_tokens: int,
        seconds: float,
        live_share: float = 0.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.max_tokens = max_tokens
        self._seconds = self._allowed = seconds
        self._live_share = live_share
        self.computed = (0, 0.0)
        self._clock = clock
        self._rate: float | None = None
        self._last_size = 0
        self._credit = 0.0
        self._seen: float | None = None

    def forget(self) -> None:
        """Another model: nothing measured holds any more."""
        self._rate, self._last_size = None, 0

    @property
    def size(self) -> int:
        """Tokens of the next chunk."""
        if self._rate is None:
            return min(FIRST_TOKENS, self.max_tokens)
        # Rates rise with the size and fall with the position: no leaps.
        size = min(int(self._rate * self._allowed * AIM), 2 * self._last_size, self.max_tokens)
        return min(max(size, MIN_TOKENS), self.max_tokens)

    @contextlib.contextmanager
    def measuring(self, tokens: int) -> Iterator[None]:
        """Measure a chunk."""
        began = self._clock()
        yield
        taken = self._clock() - began
        self._rate, self._last_size = tokens / max(taken, 1e-6), max(tokens, MIN_TOKENS)
        # At once, as other threads look at it.
        self.computed = self.computed[0] + tokens, self.computed[1] + taken

    def idle(self) -> None:
        """No request is there: a chunk may take its full time."""
        self._allowed, self._credit, self._seen = self._seconds, 0.0, None

    def busy(self) -> None:
        """A request is being prefilled: this time does not count."""
        self._seen = None

    @contextlib.contextmanager
    def sharing(self) -> Iterator[bool]:
        """Requests only decode: yields whether a chunk may be computed now, and charges for it."""
        now = self._clock()
        if self._seen is not None:
            earned = (now - self._seen) * self._live_share / (1 - self._live_share)
            # No more is saved up than one chunk takes: after a long answer there must be no long pause.
            self._credit = min(self._credit + earned, self._seconds)
        self._allowed = max(self._credit, MIN_SECONDS)
        yield self._credit >= MIN_SECONDS
        self._seen = self._clock()
        self._credit -= self._seen - now
