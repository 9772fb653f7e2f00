"""A caller of the watcher, as the daemon is one: it looks when it is told to, reads, and follows on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import watchfiles

from tests.patience import eventually
from warmd.settings import WatchSettings
from warmd.watch import Degraded, EventSource, Look, Rearmed, Watcher, signature

EVENTS_ONLY = WatchSettings(settle=0.1, rehash=600.0)
"""No tick within any test: what is noticed was noticed by events."""


class Follower:
    """Follows files and notes what it read at each look; `contents` begins with what was there at first."""

    def __init__(self, files: Collection[Path], settings: WatchSettings, events: EventSource) -> None:
        self.files = tuple(files)
        self.looks: list[Look] = []
        self.contents: list[tuple[str | None, ...]] = []
        self.rearmed: list[Path] = []
        self.degraded: list[str] = []
        self.watcher = Watcher(settings, self._on_rearmed, self._on_degraded, events)

    def _on_rearmed(self, rearmed: Rearmed) -> None:
        self.rearmed.append(rearmed.directory)

    def _on_degraded(self, degraded: Degraded) -> None:
        self.degraded.append(degraded.reason)

    async def run(self) -> None:
        """Look for ever."""
        while True:
            seen = signature(self.files)
            self.contents.append(tuple(map(read, self.files)))
            self.watcher.follow(self.files, seen)
            self.looks.append(await self.watcher.settled())

    async def saw(self, *contents: str | None) -> None:
        """Wait until the last look found these contents, one for each file."""
        await eventually(lambda: self.contents[-1:] == [contents])

    async def looked(self, times: int) -> None:
        """Wait until there were so many looks."""
        await eventually(lambda: len(self.looks) >= times)

    async def heard(self, times: int) -> None:
        """Wait until events came so often."""
        await eventually(lambda: self.watcher.statistics().batches >= times)

    async def watches(self, *directories: Path) -> None:
        """Wait until exactly these directories are watched."""
        await eventually(lambda: set(self.watcher.statistics().directories) == set(directories))


def read(path: Path) -> str | None:
    """A file's text; None while it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return None


@asynccontextmanager
async def following(
    *files: Path, settings: WatchSettings = EVENTS_ONLY, events: EventSource = watchfiles.awatch
) -> AsyncIterator[Follower]:
    """A follower at work, with its watch in place."""
    follower = Follower(files, settings, events)
    async with anyio.create_task_group() as tasks:
        await tasks.start(follower.watcher.run)
        tasks.start_soon(follower.run)
        await eventually(lambda: follower.watcher.statistics().armings > 0 or settings.poll)
        yield follower
        tasks.cancel_scope.cancel()
