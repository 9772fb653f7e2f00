"""Carries out plans: warms and frees prefixes, never more at once than allowed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Set
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup

from warmd.backoff import retry_delay
from warmd.crash.quarantine import Quarantine
from warmd.engines.base import Engine, EngineDiedError, Held, NoRoomError
from warmd.errors import WarmdError
from warmd.ledger import Ledger, Slot
from warmd.plan import Drop, Plan, Shortage, Wanted
from warmd.tell import Teller
from warmd.vigil import Vigil

MOST_LOOKS = 64
"""A prefix that found no room again and again is tried after so many looks at the memory at last."""


@dataclass(frozen=True, slots=True)
class _Flight:
    """A warming under way."""

    scope: anyio.CancelScope
    priority: int


class Warmer:
    """What goes on in one engine for one identity of it.

    Args:
        engine: Where to warm.
        ledger: What is known of each prefix.
        tell: Receives what happens.
        tasks: Where warmings run.
        turnstile: Shared by all warmers of a daemon.
        quarantine: Has a mark on disk for each prefix while it is being warmed.
        watch_over: Who watches over the warming of a prefix.
        on_change: Called when a plan should be made again.
        on_idle: Called when nothing is left to do.
        room_delay: Seconds before a prefix that found no room is tried again.
    """

    def __init__(
        self,
        engine: Engine,
        ledger: Ledger,
        tell: Teller,
        tasks: TaskGroup,
        turnstile: Turnstile,
        quarantine: Quarantine,
        watch_over: Callable[[Slot], Vigil],
        *,
        on_change: Callable[[], None],
        on_idle: Callable[[], None],
        room_delay: float,
        randomness: Callable[[], float] = random.random,
    ) -> None:
        self._engine = engine
        self._identity = engine.identity
        self._ledger = ledger
        self._tell = tell
        self._tasks = tasks
        self._turnstile = turnstile
        self._quarantine = quarantine
        self._watch_over = watch_over
        self._on_change = on_change
        self._on_idle = on_idle
        self._room_delay = room_delay
        self._randomness = randomness
        self._queue: list[Wanted] = []
        self._in_flight: dict[str, _Flight] = {}
        self._drop_after: dict[str, list[Drop]] = {}
        self._dropping: set[str] = set()

    @property
    def in_flight(self) -> frozenset[str]:
        """Keys that are being warmed."""
        return frozenset(self._in_flight)

    @property
    def freeing(self) -> frozenset[str]:
        """Keys that are still to be freed: not to be planned before that."""
        return frozenset(self._dropping)

    @property
    def queued(self) -> frozenset[str]:
        """Keys whose turn has not come."""
        return frozenset(item.key for item in self._queue)

    def held(self) -> dict[str, Held]:
        """What the engine holds and is not about to free."""
        return {key: held for key, held in self._engine.held().items() if key not in self._dropping}

    def retire(self) -> None:
        """The engine's identity is gone: stop everything, and say no more."""
        self.cancel(self.in_flight)
        self._queue = []
        self._on_idle = _nothing

    def cancel(self, keys: Set[str]) -> None:
        """Stop warming these."""
        for key in keys & self.in_flight:
            self._in_flight.pop(key).scope.cancel()

    def renew(self, keys: Set[str]) -> None:
        """Stop and free these, whatever their state: the next plan begins them anew."""
        begun = keys & (self.held().keys() | self._in_flight.keys())
        self.cancel(keys)
        for key in keys:
            self._ledger.slots[key].forgive()
        # Of the others there may be a part, or files.
        self._drop([Drop(key, reason="it is to be warmed again") for key in sorted(keys)], told=begun)

    def carry_out(self, plan: Plan) -> None:
        """Replace what is queued, and free what is to be freed; `fill` begins to warm."""
        self._queue = list(plan.warm)
        self._drop_after = {}
        for drop in plan.drop:
            if drop.after is not None:
                self._drop_after.setdefault(drop.after, []).append(drop)
        self._drop([drop for drop in plan.drop if drop.after is None])
        self._give_way()

    def _give_way(self) -> None:
        """Stop the warming of lowest priority where a higher one waits; what it has done is kept."""
        if not self._queue or self._turnstile.has_room:
            return
        lowest = min(self._in_flight.items(), key=lambda item: item[1].priority, default=None)
        if lowest is not None and lowest[1].priority < self._queue[0].priority:
            self.cancel({lowest[0]})

    # --- warming ---------------------------------------------------------------------------------

    def fill(self) -> None:
        """Start as many warmings as the bound allows; note when nothing is left to do."""
        while self._queue and self._turnstile.enter():
            self._start(self._queue.pop(0))
        if not (self._queue or self._in_flight or self._dropping):
            self._on_idle()

    def _start(self, wanted: Wanted) -> None:
        slot, scope = self._ledger.slots[wanted.key], anyio.CancelScope()
        self._in_flight[wanted.key] = _Flight(scope, wanted.priority)
        slot.mark_warming(self._engine.effort)
        self._tell.warming(slot)
        self._tasks.start_soon(self._warm, wanted.key, slot, scope)

    async def _warm(self, key: str, slot: Slot, scope: anyio.CancelScope) -> None:
        began = time.perf_counter()
        try:
            with scope, self._watch_over(slot).over(self._tasks, scope):
                await self._warm_and_verify(key, slot)
        except EngineDiedError:
            raise
        except Exception as error:  # noqa: BLE001 - one failed warming must not end the others
            self._quarantine.excuse(key, self._identity)
            # A model that goes away takes its warmings with it; that is no failure of theirs.
            if self._engine.identity == self._identity:
                self._fail(slot, error)
        finally:
            slot.warm_seconds += time.perf_counter() - began
            self._turnstile.leave()
            flight = self._in_flight.get(key)
            if flight is not None and flight.scope is scope:
                del self._in_flight[key]
            elif slot.state == "warming" and flight is None:
                slot.mark_pending()
        # Not reached when the daemon itself is told to stop.
        if scope.cancel_called:
            self._quarantine.excuse(key, self._identity)
            # It may have been held in the same moment.
            self._on_change()
        self._turnstile.next()

    async def _warm_and_verify(self, key: str, slot: Slot) -> None:
        began = time.perf_counter()
        async with self._quarantine.marked(key, self._identity, slot.names, len(slot.prefix)):
            warmed = await self._engine.warm(slot.prefix, slot.mark_progress)
        try:
            cached = await self._engine.look_up(slot.entry, slot.prefix)
        except Exception:
            # Not proved is not warm: the next try begins from nothing.
            await self._engine.drop([key])
            raise
        milliseconds = (time.perf_counter() - began) * 1000
        slot.mark_held(warmed, cached=cached)
        if slot.state == "warm":
            self._tell.warmed(warmed, milliseconds, list(slot.names))
        else:
            for name in slot.names:
                self._tell.failed(name, slot.state, slot.reason or "")
        self._drop(self._drop_after.pop(key, []))

    def _fail(self, slot: Slot, error: Exception) -> None:
        if isinstance(error, NoRoomError):
            # The plan had expected that it fits: not before the memory has been looked at again.
            # Each time that it was wrong, longer.
            slot.shortages += 1
            delay = self._room_delay * min(2 ** (slot.shortages - 1), MOST_LOOKS)
            not_before = anyio.current_time() + delay
            slot.needed, slot.needed_at = error.needed, anyio.current_time()
            self.defer(slot, Shortage(error.needed, error.available, str(error)), not_before=not_before)
        else:
            delay = retry_delay(slot.failures + 1, self._randomness())
            reason = f"warming failed with {type(error).__name__}"
            if isinstance(error, WarmdError):
                # Ours say what is wrong, and never with a word of a prompt.
                reason = f"warming failed: {error}"
            slot.mark_failed(reason, not_before=anyio.current_time() + delay)
            for name in slot.names:
                self._tell.failed(name, "failed", reason, retry_in=round(delay, 3))
        self._on_change()

    def defer(
        self, slot: Slot, shortage: Shortage, *, not_before: float = 0.0, is_told: bool = False
    ) -> None:
        """A prefix waits for memory; told when that is news, unless what all wait for has been told."""
        is_news = slot.state != "deferred" and not is_told
        slot.mark_deferred(shortage.reason, not_before=not_before)
        if is_news:
            self._tell.deferred(slot, shortage)

    # --- freeing ---------------------------------------------------------------------------------

    def _drop(self, drops: list[Drop], told: Set[str] | None = None) -> None:
        """Begin to free prefixes; the engine may be too busy to do it now, which holds up nothing else.

        Args:
            drops: What to free.
            told: Keys of those that an event tells of; None for all.
        """
        if drops:
            known = {**self._ledger.slots, **self._ledger.retired}
            slots = [
                (known[drop.key], drop.reason)
                for drop in drops
                if drop.key in known and (told is None or drop.key in told)
            ]
            for drop in drops:
                self._ledger.retired.pop(drop.key, None)
            keys = [drop.key for drop in drops]
            self._dropping.update(keys)
            self._tasks.start_soon(self._free, keys, slots)

    async def _free(self, keys: list[str], slots: list[tuple[Slot, str | None]]) -> None:
        await self._engine.drop(keys)
        self._dropping.difference_update(keys)
        for slot, reason in slots:
            self._tell.dropped(slot, reason)
        if any(key in self._ledger.slots and self._ledger.slots[key].state == "pending" for key in keys):
            # They are wanted anew, which had to wait for this.
            self._on_change()
        else:
            self.fill()


def _nothing() -> None:
    """Nobody is to be told."""


class Turnstile:
    """Bounds how many warmings run, also across reloads and models.

    Cancelled ones that have not ended yet count.

    Args:
        places: The bound.
        next: Called when one has ended.

    Attributes:
        is_closed: Nobody gets in.
    """

    def __init__(self, places: int, next: Callable[[], None]) -> None:  # noqa: A002 - reads as what it is
        self._free = places
        self.is_closed = False
        self.next = next

    @property
    def has_room(self) -> bool:
        """True when there is a place."""
        return self._free > 0

    def enter(self) -> bool:
        """Take a place, if there is one."""
        if not self.has_room or self.is_closed:
            return False
        self._free -= 1
        return True

    def leave(self) -> None:
        """Give a place back."""
        self._free += 1
