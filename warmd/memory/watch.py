"""Tells what changes in the memory, once."""

from __future__ import annotations

from typing import Protocol

from warmd.memory.readings import Memory


class Reporter(Protocol):
    """Who is told."""

    def pressure(self, memory: Memory) -> None:
        """The system's pressure has changed."""

    def memory_failed(self, reason: str) -> None:
        """Nothing can be warmed, and why."""


class Source(Protocol):
    """What is looked at."""

    def memory(self) -> Memory | None:
        """As it is now; None where nobody keeps a limit."""


class MemoryWatch:
    """Looks, and tells what is news.

    Args:
        tell: Who is told.
    """

    def __init__(self, tell: Reporter) -> None:
        self._tell = tell
        self._pressure = 1
        self._is_blocked = False

    def look(self, source: Source) -> Memory | None:
        """One look."""
        memory = source.memory()
        if memory is None:
            return None
        is_blocked = memory.blocked is not None
        if memory.blocked is not None and not self._is_blocked:
            self._tell.memory_failed(memory.blocked)
        self._is_blocked = is_blocked
        if memory.error is None and memory.pressure != self._pressure:
            self._pressure = memory.pressure
            self._tell.pressure(memory)
        return memory
