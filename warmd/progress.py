"""How fast a warming goes."""

from __future__ import annotations

import time
from collections.abc import Callable


class Progress:
    """Measures tokens a second, from the end of the first chunk on: what was there before it took no time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first: tuple[int, float] | None = None
        self._last: tuple[int, float] | None = None

    def note(self, done: int) -> None:
        """So many tokens are done now."""
        self._last = done, self._clock()
        self._first = self._first or self._last

    @property
    def rate(self) -> float | None:
        """Tokens a second; None until there are two chunks to tell it by."""
        if self._first is None or self._last is None:
            return None
        tokens, seconds = self._last[0] - self._first[0], self._last[1] - self._first[1]
        return tokens / seconds if tokens > 0 and seconds > 0 else None
