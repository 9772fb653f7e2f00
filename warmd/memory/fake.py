"""A scripted meter for tests: of this package, and of programs that build on it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from warmd.memory.readings import Reading, ReadingError

_GIGABYTE = 10**9


@dataclass(slots=True)
class FakeMeter:
    """A `Meter` that says what it is told: by default a machine of 16 GB, others holding 4, this process 2.

    Set the fields of a `Reading` at any time, as in ``meter.others = 9 * 10**9``: the next look has them.

    Attributes:
        reads: How often it was read, failed looks included.
    """

    active: int = 2 * _GIGABYTE
    pool: int = 0
    footprint: int = 2 * _GIGABYTE
    physical: int = 16 * _GIGABYTE
    others: int = 4 * _GIGABYTE
    recommended: int | None = None
    pressure: int = 1
    reads: int = field(default=0, init=False)
    _queue: deque[Reading | ReadingError] = field(default_factory=deque, init=False, repr=False)
    _error: ReadingError | None = field(default=None, init=False, repr=False)

    def reading(self) -> Reading:
        """What the fields say, without counting as a look."""
        return Reading(
            active=self.active,
            pool=self.pool,
            footprint=self.footprint,
            physical=self.physical,
            others=self.others,
            recommended=self.recommended,
            pressure=self.pressure,
        )

    def queue(self, *readings: Reading | ReadingError) -> None:
        """Let the next looks give these, or fail so, one each; after them the fields count again."""
        self._queue.extend(readings)

    def fail(self, error: str | ReadingError | None) -> None:
        """Let every look fail, also those that are queued, for this reason; None ends that."""
        self._error = ReadingError("the memory", error) if isinstance(error, str) else error

    def read(self) -> Reading:
        """See `Meter.read`."""
        self.reads += 1
        if self._error is not None:
            raise self._error
        step = self._queue.popleft() if self._queue else self.reading()
        if isinstance(step, ReadingError):
            raise step
        return step
