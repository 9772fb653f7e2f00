"""Sources of events that misbehave as real ones do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import watchfiles

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
