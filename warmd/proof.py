"""Proves now and then that what is warm is still served, and notices when the machine has slept."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import anyio

from warmd.engines.base import Engine, EngineDiedError
from warmd.ledger import Slot

NAP = 30.0
"""Seconds between two looks at the clocks."""
JUMP = 5.0
"""Seconds by which they may come apart before the machine is taken to have slept, or its clock to be set."""


class Prover:
    """Looks each warm entry up, as a request of it would.

    Args:
        engine: What is asked.
        slots: The wanted prefixes now, by key.
        on_lost: Called with the key of one that a request would not get, and the tokens that it would.
        interval: Seconds between two rounds.
        wall: The clock on the wall, in seconds.
        monotonic: A clock that nobody sets, and that may stand still while the machine sleeps.
    """

    def __init__(
        self,
        engine: Engine,
        slots: Callable[[], Mapping[str, Slot]],
        on_lost: Callable[[str, int], None],
        interval: float,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._slots = slots
        self._on_lost = on_lost
        self._interval = interval
        self._wall = wall
        self._monotonic = monotonic

    async def run(self) -> None:
        """Prove for ever: after each interval, and at once after a sleep or a jump of the clock."""
        while True:
            await self._wait()
            await self.prove()

    async def prove(self) -> None:
        """One round, one entry after the other."""
        for key, slot in list(self._slots().items()):
            if slot.state != "warm":
                continue
            try:
                cached = await self._engine.look_up(slot.entry, slot.prefix)
            except EngineDiedError:
                raise
            except Exception:  # noqa: BLE001 - a model that goes away meanwhile, or a template that fails now
                continue
            # By then it may be wanted no more, or be warmed anew.
            is_still_warm = self._slots().get(key) is slot and slot.state == "warm"
            if is_still_warm and cached is not None and cached < (slot.tokens or 0):
                self._on_lost(key, cached)

    async def _wait(self) -> None:
        began = self._monotonic()
        apart = self._wall() - began
        while (left := began + self._interval - self._monotonic()) > 0:
            await anyio.sleep(min(left, NAP))
            if abs(self._wall() - self._monotonic() - apart) > JUMP:
                return
