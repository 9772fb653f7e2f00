"""The memory guard: no chunk is computed that does not fit. On the engine's thread, but for `memory`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import mlx.core as mx

from warmd.engines.base import NoRoomError
from warmd.memory.cost import Cost
from warmd.memory.readings import Limit, Memory, Meter, Reading, ReadingError, headroom, look
from warmd.memory.system import System

PROBE_TOKENS = 32
"""The first chunk of a model is this small: what it takes is measured, and only then more is computed."""

_MARGIN = 1.25
"""The peak counts active bytes only, and mlx's pool keeps some buffers that fit nothing that comes next."""

_REFERENCE = 1024
"""Tokens for which two measurements are compared."""

MIN_CHUNK = 8
"""Smaller chunks are not worth their overhead: then there is no room."""


class MlxMeter:
    """Reads mlx's counters and the system's."""

    def __init__(self, system: System | None = None) -> None:
        self._system = system or System()
        recommended = mx.device_info().get("max_recommended_working_set_size")
        self._recommended = int(recommended) if recommended else None

    def read(self) -> Reading:
        """Look now, from any thread."""
        return self._system.reading(
            active=mx.get_active_memory(), pool=mx.get_cache_memory(), recommended=self._recommended
        )


@dataclass(frozen=True, slots=True)
class Transient:
    """What one chunk took besides what was there before it, in bytes: measured once, scaled to others.

    Attributes:
        bytes: The peak over what was active before, and a margin.
        size: The chunk's tokens.
        end: Tokens of the state after it.
    """

    bytes: int
    size: int
    end: int

    @property
    def is_probe(self) -> bool:
        """True when the chunk was too small to tell what grows with it."""
        return self.size < 4 * PROBE_TOKENS

    def is_outdone_by(self, other: Transient, cost: Cost) -> bool:
        """True when another chunk shows better, or that more is needed: the most that was seen counts."""
        if self.is_probe != other.is_probe:
            return self.is_probe
        return self.scaled(cost, _REFERENCE, _REFERENCE) < other.scaled(cost, _REFERENCE, _REFERENCE)

    def scaled(self, cost: Cost, size: int, end: int) -> int:
        """For a chunk of another size at another place.

        The cache grows in blocks whatever the chunk's size; the rest goes by its tokens, and attention by
        those before it as well.
        """
        varying = self.bytes if self.is_probe else max(0, self.bytes - _growth(cost, self.end))
        return _growth(cost, end) + int(varying * (size / self.size) * max(1.0, end / self.end))


def _growth(cost: Cost, end: int) -> int:
    """A new block for every layer, while the largest one is held twice."""
    return cost.working(1) + int(cost.working(end) * cost.largest_share)


class Guard:
    """Keeps warming within the limit.

    Args:
        limit: What may be taken.
        meter: How to look.
    """

    def __init__(self, limit: Limit, meter: Meter | None = None) -> None:
        self.limit = limit
        self._meter = meter or MlxMeter()
        self._cost: Cost | None = None
        self._transient: Transient | None = None

    def model_loaded(self, cost: Cost | None) -> None:
        """Another model, or none: nothing measured holds any more."""
        self._cost, self._transient = cost, None

    @property
    def cost(self) -> Cost | None:
        """Of the loaded model, as far as it has been measured; None while there is none."""
        if self._cost is None or self._transient is None:
            return self._cost
        return replace(self._cost, transient=self._transient.bytes)

    def memory(self, warm: int, spare: int, ordinary: int) -> Memory:
        """How things are, from any thread.

        Args:
            warm: Bytes that the store holds.
            spare: Of those, bytes of checkpoints.
            ordinary: Bytes that mlx-lm's own prompt cache holds.
        """
        return replace(look(self._meter, self.limit, warm), spare=spare, ordinary=ordinary)

    def admit(self, tokens: int) -> None:
        """Before the first chunk of a prefix.

        Raises:
            NoRoomError: Warming so many tokens would not fit.
        """
        cost = self.cost
        needed, room = cost.peak(tokens) if cost is not None else 0, self._room()
        if needed > room:
            room = self._cleared()
        if needed > room:
            raise NoRoomError(needed, room)

    def can_spare(self, size: int) -> bool:
        """True when there is room for something that is not needed, and for as much again."""
        return self.has_room(2 * size)

    def has_room(self, size: int) -> bool:
        """True when so many bytes may be taken now."""
        try:
            return self._room() >= size
        except NoRoomError:
            return False

    def chunk(self, done: int, size: int) -> int:
        """How many of the next `size` tokens to compute at once.

        Raises:
            NoRoomError: Not even a small chunk fits, the system is short of memory, or it cannot be read.
        """
        room = self._room()
        if self._transient is None:
            size = min(size, PROBE_TOKENS)
        if self._takes(done, size) > room:
            room = self._cleared()
        while (needed := self._takes(done, size)) > room:
            if size <= MIN_CHUNK:
                # With what has been computed, as a plan counts it.
                working = self._cost.working(done) if self._cost is not None and done else 0
                raise NoRoomError(needed + working, room + working)
            size = max(MIN_CHUNK, size // 2)
        return size

    @contextlib.contextmanager
    def measuring(self, size: int, end: int) -> Iterator[None]:
        """Measure what a chunk takes besides what is there."""
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        yield
        found = Transient(int(max(0, mx.get_peak_memory() - before) * _MARGIN), size, end)
        if self._transient is None or self._transient.is_outdone_by(found, self._cost or Cost(0)):
            self._transient = found

    def _takes(self, done: int, size: int) -> int:
        if self._cost is None:
            return 0
        if self._transient is None:
            return _growth(self._cost, done + size)
        return self._transient.scaled(self._cost, size, done + size)

    def _room(self) -> int:
        try:
            reading = self._meter.read()
        except ReadingError as error:
            raise NoRoomError(0, 0, str(error)) from None
        if reading.pressure > 1:
            raise NoRoomError(0, 0, "the system is short of memory")
        return headroom(reading, self.limit)

    def _cleared(self) -> int:
        """Room once the pool is given back: it holds nothing that anybody needs."""
        mx.clear_cache()
        return self._room()
