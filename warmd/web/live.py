"""Looks at a daemon from other threads than its own."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from dataclasses import dataclass

from anyio.from_thread import BlockingPortal

from warmd.status import Statistics
from warmd.web.recent import Recent, Recorded

PATIENCE = 2.0
"""Seconds in which a daemon that is alive answers: its event loop does nothing that takes long."""


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
    """Takes snapshots on the daemon's event loop, for any thread that asks.

    Args:
        portal: Leads into the event loop.
        statistics: Called there.
        recent: Read there.
    """

    def __init__(self, portal: BlockingPortal, statistics: Callable[[], Statistics], recent: Recent) -> None:
        self._portal = portal
        self._statistics = statistics
        self._recent = recent

    def look(self) -> Snapshot:
        """Look now, from any thread but the event loop's.

        Raises:
            UnavailableError: The event loop has ended, or is stuck.
        """
        try:
            future = self._portal.start_task_soon(self._take)
        except RuntimeError:
            raise UnavailableError from None
        try:
            return future.result(PATIENCE)
        except (TimeoutError, concurrent.futures.CancelledError):
            future.cancel()
            raise UnavailableError from None

    def _take(self) -> Snapshot:
        return Snapshot(self._statistics(), self._recent.events())
