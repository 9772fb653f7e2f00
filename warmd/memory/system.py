"""What the operating system says about memory: the same questions on macOS and Linux."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol

from warmd.memory.linux import Linux
from warmd.memory.readings import Reading, ReadingError


class Source(Protocol):
    """One operating system's answers, in bytes but for the pressure. They raise OSError or ValueError."""

    def physical(self) -> int:
        """All memory."""

    def available(self) -> int:
        """What new demand can get."""

    def footprint(self) -> int:
        """Held by this process."""

    def pressure(self) -> int:
        """1 normal, 2 warning, 4 critical."""


class System:
    """What this machine says about its memory. Every method raises `ReadingError` when it cannot tell.

    Args:
        source: In place of the operating system that this runs on.
    """

    def __init__(self, source: Source | None = None) -> None:
        self._source = source

    def physical(self) -> int:
        """Bytes of the machine, or of the container where it may use less."""
        return self._ask("the physical memory", lambda source: source.physical())

    def footprint(self) -> int:
        """Bytes this process holds that the system cannot simply drop."""
        return self._ask("the footprint of this process", lambda source: source.footprint())

    def others(self) -> int:
        """Bytes held by other processes and the system: all that is neither available nor this process's."""
        return self._others(self.physical(), self.footprint())

    def pressure(self) -> int:
        """1 normal, 2 warning, 4 critical. On Linux always 1."""
        return self._ask("the memory pressure", lambda source: source.pressure())

    def reading(self, *, active: int, pool: int, recommended: int | None) -> Reading:
        """A whole `Reading`, from mlx's three numbers (bytes) and one look at the system."""
        physical, footprint = self.physical(), self.footprint()
        return Reading(
            active=active,
            pool=pool,
            footprint=footprint,
            physical=physical,
            others=self._others(physical, footprint),
            recommended=recommended,
            pressure=self.pressure(),
        )

    def _others(self, physical: int, footprint: int) -> int:
        available = self._ask("the available memory", lambda source: source.available())
        # The counts are not taken at one moment, nor by one part of the system.
        return max(0, physical - available - footprint)

    def _ask(self, what: str, question: Callable[[Source], int]) -> int:
        if self._source is None:
            self._source = _native(sys.platform)
        if self._source is None:
            raise ReadingError(what, f"expected macOS or Linux, found {sys.platform}")
        try:
            return question(self._source)
        except OSError as error:
            reason = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            raise ReadingError(what, reason) from None
        except ValueError as error:
            raise ReadingError(what, str(error)) from None


def _native(platform: str) -> Source | None:
    if platform == "linux":
        return Linux()
    if platform == "darwin":
        # Only where it is used: ctypes takes time to load.
        from warmd.memory.macos import MacOS

        return MacOS()
    return None
