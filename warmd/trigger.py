"""A level trigger: setting it any number of times wakes the one waiter once."""

from __future__ import annotations

import anyio


class Signal:
    """An event that clears itself when it is waited for. For one waiter, within one event loop."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def set(self) -> None:
        """Wake the waiter now, or its next `wait`."""
        self._event.set()

    async def wait(self) -> None:
        """Return once `set` has been called since the last `wait` returned."""
        await self._event.wait()
        self._event = anyio.Event()
