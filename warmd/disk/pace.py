"""Whether reading is worth it: a slow disk must not be waited for longer than prefilling takes."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 60.0
"""Seconds that reading may take where it is not known how long prefilling would."""
FIRST_PATIENCE = 10.0
"""Seconds that it may take to find out what there is to read."""
MARGIN = 0.25
"""Seconds that it may take longer: not worth a word."""
MEMORY = 600.0
"""Seconds for which a disk that was slow is remembered."""


_STAKE = 2.0
"""So many times what was waited in vain must be at stake before a slow disk is tried again."""


class ReadPace:
    """Remembers for a while how long the disk was waited for in vain.

    A small entry is soon prefilled, and a disk that is just waking up is slower than that; a large one is
    worth waiting for. As each try must be worth twice the one before, little time is lost in all.

    Args:
        clock: Seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = 0.0
        self._waited = 0.0

    def is_worth(self, allowed: float) -> bool:
        """True when reading is to be tried that may take so many seconds."""
        return self._clock() >= self._until or allowed > _STAKE * self._waited

    def note_slow(self, waited: float) -> None:
        """So many seconds were not enough."""
        self._until, self._waited = self._clock() + MEMORY, waited


def allowed_seconds(tokens: int, tokens_per_s: float | None) -> float:
    """How long reading the state of so many tokens may take, by how fast they were prefilled."""
    return PATIENCE if tokens_per_s is None else tokens / tokens_per_s + MARGIN
