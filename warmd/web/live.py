"""Looks at a daemon from other threads than its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from dataclasses import dataclass

from warmd.status import Statistics
from warmd.web.recent import Recent, Recorded

PATIENCE = 5.0
"""Seconds in which a daemon that is alive answers: its event loop does nothing that takes long, though the
machine may be busy."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A daemon at one moment."""

    statistics: Statistics
    events: tuple[Recorded, ...] = ()


class UnavailableError(Exception):
    """The daemon does not answer; `str` of it is one line."""

    def __init__(self) -> None:
        super().__init__("the daemon does not answer")


class Live:
    """Takes snapshots on the daemon's event loop, where it is made, for any thread that asks.

    Args:
        statistics: Called on the event loop.
        recent: Read there.
    """

    def __init__(self, statistics: Callable[[], Statistics], recent: Recent) -> None:
        # Not through a portal: that waits without end for a loop that is stuck.
        self._loop = asyncio.get_running_loop()
        self._statistics = statistics
        self._recent = recent

    def look(self) -> Snapshot:
        """Look now, from any thread but the event loop's.

        Raises:
            UnavailableError: The event loop has ended, or is stuck.
        """
        found: concurrent.futures.Future[Snapshot] = concurrent.futures.Future()
        try:
            self._loop.call_soon_threadsafe(self._take, found)
            return found.result(PATIENCE)
        except (RuntimeError, TimeoutError):
            found.cancel()
            raise UnavailableError from None

    def _take(self, found: concurrent.futures.Future[Snapshot]) -> None:
        if not found.set_running_or_notify_cancel():
            return
        try:
            found.set_result(Snapshot(self._statistics(), self._recent.events()))
        except Exception as error:  # noqa: BLE001 - it is raised where it was asked for
            found.set_exception(error)
