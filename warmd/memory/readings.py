"""Looks at the memory, the limit they are held against, and what is left for warming."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from warmd.errors import WarmdError
from warmd.memory.size import format_size, parse_limit, parse_size

# The rest is for the system itself, and for what other programs take between two looks.
AUTO_PERCENT = 80


class ReadingError(WarmdError):
    """The memory cannot be read now; `str` of it is one line."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"cannot read {what}: {reason}")


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the memory. Bytes, but for `pressure`.

    Attributes:
        active: Held by mlx arrays.
        pool: Freed by mlx, kept by it for reuse.
        footprint: Of the process, as the operating system counts it.
        physical: What the machine (or the container) has.
        others: Held by other processes.
        recommended: mlx's recommended working set; None where there is none.
        pressure: 1 normal, 2 warning, 4 critical.
    """

    active: int
    pool: int
    footprint: int
    physical: int
    others: int
    recommended: int | None
    pressure: int


class Meter(Protocol):
    """Something that looks at the memory."""

    def read(self) -> Reading:
        """Look now, from any thread. Takes about a millisecond.

        Raises:
            ReadingError: Some part of the reading cannot be had.
        """


@dataclass(frozen=True, slots=True)
class Limit:
    """What the process may take while warming, and what of that is kept for live requests.

    Attributes:
        size: Bytes, or None for a limit that follows the machine (``auto``).
        reserve: Bytes.
    """

    size: int | None
    reserve: int

    @classmethod
    def parse(cls, limit: str, reserve: str) -> Limit:
        """Read the settings ``[memory] limit`` (``auto`` or a size) and ``[memory] reserve`` (a size).

        Raises:
            ValueError: One is not what it should be; the message says what was expected.
        """
        return cls(parse_limit(limit), parse_size(reserve))

    def bytes(self, reading: Reading) -> int:
        """The limit in bytes at this reading, never negative.

        ``auto`` is 80 % of the physical memory less what other processes hold, or mlx's recommended working
        set where that is smaller.
        """
        if self.size is not None:
            return self.size
        free = reading.physical * AUTO_PERCENT // 100 - reading.others
        if reading.recommended is not None:
            free = min(free, reading.recommended)
        return max(0, free)


def headroom(reading: Reading, limit: Limit) -> int:
    """Bytes that warming may still take without hurting live requests; negative when it took too much."""
    # Either count can be the larger one: the system's lacks pages that mlx has not touched yet, mlx's lacks
    # everything that is not an array.
    taken = max(reading.active + reading.pool, reading.footprint)
    return limit.bytes(reading) - taken - limit.reserve


@dataclass(frozen=True, slots=True)
class Memory:
    """How things are with the memory, for status. Bytes, but for `pressure` and `error`.

    Attributes:
        limit: What the process may take while warming.
        active: Held by mlx arrays.
        cache: Freed by mlx, kept by it for reuse.
        warm: Held by warm prefixes.
        headroom: What warming may still take; negative when it took too much.
        pressure: 1 normal, 2 warning, 4 critical.
        reserve: Kept free for live requests, beyond the headroom.
        ordinary: Held by the engine's own cache of ordinary traffic, which is not ours to free.
        spare: Of the warm bytes, those that may go first: checkpoints, which only save time.
        error: Why the last look failed, in one line. Headroom, and whatever else is not known then, is 0:
            what cannot be seen is not spent.
    """

    limit: int
    active: int
    cache: int
    warm: int
    headroom: int
    pressure: int
    reserve: int = 0
    spare: int = 0
    ordinary: int = 0
    error: str | None = None

    @classmethod
    def of(cls, reading: Reading, limit: Limit, warm: int) -> Memory:
        """From a look at the memory and the bytes held by warm prefixes."""
        return cls(
            limit=limit.bytes(reading),
            active=reading.active,
            cache=reading.pool,
            warm=warm,
            headroom=headroom(reading, limit),
            pressure=reading.pressure,
            reserve=limit.reserve,
        )

    @property
    def available(self) -> int:
        """Headroom once mlx's pool and the checkpoints have been given back, as they are in need."""
        return self.headroom + self.cache + self.spare

    @property
    def most(self) -> int:
        """What all warm prefixes together could have, if ordinary traffic had nothing cached."""
        return self.headroom + self.cache + self.warm + self.ordinary

    @property
    def excess(self) -> int:
        """What is taken beyond the limit and the reserve, but for what ordinary traffic has cached."""
        return -(self.available + self.reserve + self.ordinary)

    @property
    def blocked(self) -> str | None:
        """Why nothing at all can be warmed, in one line, or None."""
        if self.error is not None:
            return self.error
        if self.most > 0:
            return None
        taken = self.limit - self.reserve - self.headroom - self.cache - self.warm
        return (
            f"the memory limit of {format_size(self.limit)} leaves no room: {format_size(taken)} are taken "
            f"without any warm prefix, {format_size(self.reserve)} are kept for live requests"
        )

    @classmethod
    def unknown(cls, error: ReadingError, limit: Limit, warm: int) -> Memory:
        """From a failed look at the memory and the bytes held by warm prefixes."""
        return cls(
            limit=limit.size or 0,
            active=0,
            cache=0,
            warm=warm,
            headroom=0,
            pressure=0,
            reserve=limit.reserve,
            error=str(error),
        )


def look(meter: Meter, limit: Limit, warm: int) -> Memory:
    """Read a meter once; a reading that fails is told in the result's `error` and leaves no headroom.

    Args:
        meter: What to read.
        limit: What the reading is held against.
        warm: Bytes held by warm prefixes.
    """
    try:
        return Memory.of(meter.read(), limit, warm)
    except ReadingError as error:
        return Memory.unknown(error, limit, warm)
