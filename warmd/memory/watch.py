"""Tells what changes in the memory, once."""

from __future__ import annotations

from typing import Protocol

from warmd.memory.readings import Memory


class Reporter(Protocol):
    """Who is told."""

    def pressure(self, memory: Memory) -> None:
        """The system's pressure has changed."""

    def memory_failed(self, reason: str) -> None:
        """The memory cannot be read."""


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
        self._error: str | None = None

    def look(self, source: Source) -> Memory | None:
        """One look."""
        memory = source.memory()
        if memory is None:
            return None
        if memory.error is not None:
            if memory.error != self._error:
                self._tell.memory_failed(memory.error)
        elif memory.pressure != self._pressure:
            self._pressure = memory.pressure
            self._tell.pressure(memory)
        self._error = memory.error
        return memory
