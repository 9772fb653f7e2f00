"""Turns what the daemon does into events, one method for each."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path

from warmd import __version__
from warmd.engines.base import Warmed
from warmd.events import Emit, make_event
from warmd.ledger import Slot
from warmd.plan import Plan


class Teller:
    """Builds events and hands them to `emit`. Entries that share a prefix get an event each."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit

    def started(self, path: Path, engine: str) -> None:
        """The daemon begins to run."""
        self._emit(
            make_event("daemon.started", version=__version__, pid=os.getpid(), path=str(path), engine=engine)
        )

    def ready(self, model: str | None, entries: int, url: str | None) -> None:
        """A model is loaded and the first plan is made."""
        self._emit(make_event("daemon.ready", model=model, entries=entries, url=url))

    def model_changed(self, model: str | None, previous: str) -> None:
        """Another model was loaded, or (None) the model was unloaded."""
        self._emit(make_event("engine.model_changed", model=model, previous=previous))

    def plan(self, plan: Plan, generation: int) -> None:
        """A plan was made."""
        self._emit(
            make_event(
                "plan.made",
                generation=generation,
                keep=len(plan.keep),
                warm=len(plan.warm),
                drop=len(plan.drop),
                defer=len(plan.defer),
                new_tokens=plan.new_tokens,
            )
        )

    def warming(self, slot: Slot) -> None:
        """The warming of a prefix begins."""
        for name in slot.names:
            self._emit(make_event("entry.warming", entry=name, tokens=len(slot.prefix)))

    def warmed(self, warmed: Warmed, milliseconds: float, names: Iterable[str]) -> None:
        """A prefix is held and served; `names` are the entries for which that is news."""
        for name in names:
            self._emit(
                make_event(
                    "entry.warmed",
                    entry=name,
                    tokens=warmed.tokens,
                    new_tokens=warmed.new_tokens,
                    reused_tokens=warmed.reused_tokens,
                    source=warmed.source,
                    ms=round(milliseconds),
                    kv_bytes=warmed.kv_bytes,
                )
            )
            # Further entries with the same tokens cost nothing.
            warmed = Warmed(warmed.tokens, 0, warmed.tokens, warmed.kv_bytes, warmed.source)

    def lost(self, slot: Slot, names: Collection[str]) -> None:
        """The engine no longer holds a prefix; `names` are the entries that had been warm."""
        for name in slot.names:
            if name in names:
                self._emit(make_event("entry.lost", entry=name, tokens=len(slot.prefix)))

    def failed(self, name: str, state: str, reason: str, *, retry_in: float | None = None) -> None:
        """An entry is not warm, why, and in how many seconds it is tried again."""
        self._emit(make_event("entry.failed", entry=name, state=state, reason=reason, retry_in_s=retry_in))

    def dropped(self, slot: Slot) -> None:
        """A prefix that nobody wants any more was freed."""
        for name in slot.names:
            self._emit(make_event("entry.dropped", entry=name, tokens=len(slot.prefix)))
