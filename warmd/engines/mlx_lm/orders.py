"""What the daemon asks of the engine's thread, as plain data: every rank can carry it out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

from warmd.engines.base import Prefix, Warmed
from warmd.engines.mlx_lm.desk import Job
from warmd.engines.mlx_lm.prefill import Prefill
from warmd.engines.mlx_lm.room import EngineRoom
from warmd.engines.mlx_lm.warming import Warming


@dataclass(frozen=True, slots=True)
class Declare:
    """These prefixes are to be held, and no others."""

    prefixes: tuple[Prefix, ...]


@dataclass(frozen=True, slots=True)
class Warm:
    """Prefill a prefix, and hold it."""

    prefix: Prefix


@dataclass(frozen=True, slots=True)
class Drop:
    """Free prefixes, also what has been computed of those that were cancelled."""

    keys: tuple[str, ...]


Order = Declare | Warm | Drop


class Worker:
    """Makes jobs of orders, for the engine's thread of one rank.

    Args:
        room: With what the jobs work on.
        provider: mlx-lm's `ModelProvider`; read only on the engine's thread.
    """

    def __init__(self, room: EngineRoom, provider: Any) -> None:
        self._room = room
        self._provider = provider
        self._prefills: WeakSet[Prefill] = WeakSet()
        """Begun, and perhaps not yet abandoned. Engine's thread only, so that it is alike on all ranks."""

    def job(self, order: Order, on_progress: Callable[[int], None] = lambda done: None) -> Job[Any]:
        """The job that carries an order out; `on_progress` is called with the tokens done so far."""
        if isinstance(order, Warm):
            return self._warm(order, on_progress)
        if isinstance(order, Declare):
            return Job(lambda: self._declare(order), order=order)
        return Job(lambda: self._drop(order), order=order)

    def _warm(self, order: Warm, on_progress: Callable[[int], None]) -> Job[Any]:
        room, prefix, provider = self._room, order.prefix, self._provider
        prefill = Prefill(
            prefix, room.store, provider, room.pace.max_tokens, on_progress, room.guard, room.pace
        )
        work: Prefill | Warming = prefill
        if (keeper := room.keeper) is not None:
            work = Warming(
                prefill,
                keeper,
                lambda: keeper.loading(prefix, room.store, provider, on_progress, room.guard),
            )

        def step() -> Warmed | None:
            self._prefills.add(prefill)
            return work.step()

        return Job(step, work.abandon, order)

    def _declare(self, order: Declare) -> bool:
        self._room.store.declare(order.prefixes)
        return True

    def _drop(self, order: Drop) -> bool:
        for prefill in list(self._prefills):
            if prefill.prefix.key in order.keys:
                prefill.doubt()
        # If it fails, the store has let go of everything: of these prefixes as well.
        with contextlib.suppress(Exception):
            self._room.store.drop(order.keys)
        return True
