"""Sources of events that misbehave as real ones do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import watchfiles

from warmd.trigger import Signal

Changes = set[tuple[watchfiles.Change, str]]

NEVER = False


@dataclass
class Silent:
    """Accepts every directory and never tells anything, as on a bind mount or after the system slept."""

    watched: list[tuple[Path, ...]] = field(default_factory=list)

    async def __call__(self, *paths: Path, **options: Any) -> AsyncIterator[Changes]:
        """Watch in silence."""
        self.watched.append(paths)
        await options["stop_event"].wait()
        if NEVER:
            yield set()


@dataclass
class Told:
    """Tells of a change whenever a test says so, and knows how it was asked for them."""

    options: dict[str, Any] = field(default_factory=dict)
    change: Signal = field(default_factory=Signal)

    async def __call__(self, *paths: Path, **options: Any) -> AsyncIterator[Changes]:
        """Wait for the test."""
        self.options = options
        while not options["stop_event"].is_set():
            with anyio.move_on_after(0.02) as pause:
                await self.change.wait()
            if not pause.cancelled_caught:
                yield {(watchfiles.Change.modified, str(path)) for path in paths}


@dataclass
class Refusing:
    """Raises its errors one after the other, then works."""

    errors: list[Exception]

    async def __call__(self, *paths: Path, **options: Any) -> AsyncIterator[Changes]:
        """Refuse, or watch."""
        if self.errors:
            raise self.errors.pop(0)
        async for changes in watchfiles.awatch(*paths, **options):
            yield changes


@dataclass
class Deaf:
    """Deaf to its stop event, and to everything else but cancellation."""

    async def __call__(self, *paths: Path, **options: Any) -> AsyncIterator[Changes]:
        """Hang."""
        await anyio.sleep_forever()
        if NEVER:
            yield set()
