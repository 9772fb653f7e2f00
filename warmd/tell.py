"""Turns what the daemon does into events, one method for each."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from warmd import __version__
from warmd.admission import EntryCost
from warmd.engines.base import Foreseen, Identity, LiveRequest, Reported, Warmed
from warmd.errors import RenderError, VolatileError
from warmd.events import Emit, make_event
from warmd.launched import is_under_launchd
from warmd.ledger import Slot, problem_status
from warmd.memory.readings import Memory
from warmd.plan import Plan, Shortage
from warmd.status import Statistics


class Teller:
    """Builds events and hands them to `emit`. Entries that share a prefix get an event each."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit

    def _emit_each(self, names: Iterable[str], event: str, **fields: Any) -> None:
        for name in names:
            self._emit(make_event(event, entry=name, **fields))

    def started(self, path: Path, engine: str) -> None:
        """The daemon begins to run."""
        self._emit(
            make_event("daemon.started", version=__version__, pid=os.getpid(), path=str(path), engine=engine)
        )

    def ready(self, model: str | None, entries: int, url: str | None) -> None:
        """A model is loaded and the first plan is made."""
        self._emit(make_event("daemon.ready", model=model, entries=entries, url=url))

    def paused(self) -> None:
        """Somebody wants nothing to be warmed for now."""
        self._emit(make_event("daemon.paused"))

    def resumed(self) -> None:
        """Warming goes on."""
        self._emit(make_event("daemon.resumed"))

    def reported(self, found: Statistics) -> None:
        """Somebody asked how things are."""
        live = found.live
        self._emit(
            make_event(
                "daemon.reported",
                model=found.model,
                uptime_s=round(found.uptime_s, 3),
                paused=found.paused,
                generation=found.document.accepted,
                entries=len(found.entries),
                warm=found.count("warm"),
                requests=live.requests if live is not None else None,
                hits=live.hits if live is not None else None,
                tokens_saved=live.tokens_saved if live is not None else None,
                headroom=found.memory.headroom if found.memory is not None else None,
            )
        )

    def model_changed(self, model: str | None, previous: str) -> None:
        """Another model was loaded, the same one once more, or (None) the model was unloaded."""
        if model == previous:
            self._emit(make_event("engine.reloaded", model=model))
            return
        self._emit(make_event("engine.model_changed", model=model, previous=previous))

    def unwarmable(self, identity: Identity) -> None:
        """Nothing can be kept warm for a model."""
        self._emit(make_event("engine.unwarmable", model=identity.model, reason=identity.unwarmable))

    def plan(self, plan: Plan, generation: int, foreseen: Foreseen | None) -> None:
        """A plan was made; what it takes may not be known."""
        self._emit(
            make_event(
                "plan.made",
                generation=generation,
                keep=len(plan.keep),
                warm=len(plan.warm),
                drop=len(plan.drop),
                defer=len(plan.defer),
                new_tokens=foreseen.new_tokens if foreseen is not None else None,
                disk_tokens=foreseen.disk_tokens if foreseen is not None else 0,
            )
        )

    def planned(self, slot: Slot, cost: EntryCost) -> None:
        """What warming a prefix will take, before anything is computed."""
        self._emit_each(
            slot.names,
            "entry.planned",
            tokens=cost.tokens,
            own_tokens=cost.own,
            shared_tokens=cost.tokens - cost.own,
            kv_bytes=cost.kv_bytes,
            fits=cost.fits,
        )

    def deferred(self, slot: Slot, shortage: Shortage) -> None:
        """A prefix waits for memory."""
        self._emit_each(
            slot.names,
            "entry.deferred",
            needed=shortage.needed,
            available=shortage.available,
            reason=shortage.reason,
        )

    def waits(self, slot: Slot, reason: str) -> None:
        """A warming stands still, and not for want of memory."""
        self.deferred(slot, Shortage(0, 0, reason))

    def slow(self, slot: Slot, rate: float, best: float) -> None:
        """A warming goes far slower than the model has been; both in tokens a second."""
        is_service = is_under_launchd(os.environ)
        who = "launchd runs this process: see `warmd doctor`" if is_service else "not under launchd"
        slower = f"{best / rate:.0f} times slower than this model's best on this machine"
        reason = f"slow_prefill: computing goes {slower}; {who}"
        self._emit_each(
            slot.names,
            "entry.slow",
            tokens_per_s=round(rate, 3),
            best_tokens_per_s=round(best, 3),
            under_launchd=is_service,
            reason=reason,
        )

    def pressure(self, memory: Memory) -> None:
        """The system's memory pressure has changed."""
        self._emit(
            make_event(
                "memory.pressure",
                level="info" if memory.pressure <= 1 else "warning",
                pressure=memory.pressure,
                limit=memory.limit,
                headroom=memory.headroom,
                warm=memory.warm,
            )
        )

    def memory_failed(self, reason: str) -> None:
        """The memory cannot be read, or the limit leaves no room for anything."""
        self._emit(make_event("memory.failed", reason=reason))

    def warming(self, slot: Slot) -> None:
        """The warming of a prefix begins."""
        self._emit_each(slot.names, "entry.warming", tokens=slot.tokens)

    def warmed(self, warmed: Warmed | Reported, milliseconds: float, names: Iterable[str]) -> None:
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
                    disk_tokens=warmed.disk_tokens,
                    disk_bytes=warmed.disk_bytes,
                    disk_ms=warmed.disk_ms,
                )
            )
            # Further entries with the same tokens cost nothing.
            warmed = Reported(warmed.tokens, 0, warmed.tokens, warmed.kv_bytes, warmed.source)

    def hit(self, slot: Slot, request: LiveRequest) -> None:
        """A live request began from all of a prefix."""
        self._emit(
            make_event("live.hit", entry=slot.names[0], tokens=len(request.tokens), cached=request.cached)
        )

    def near_miss(self, slot: Slot, request: LiveRequest, matched: int) -> None:
        """A live request began like an entry and then parted from it."""
        self._emit(
            make_event(
                "live.near_miss",
                entry=slot.names[0],
                tokens=len(request.tokens),
                matched=matched,
                prefix_tokens=len(slot.prefix),
                cached=request.cached,
            )
        )

    def lost(self, slot: Slot, names: Collection[str], cause: str) -> None:
        """A request would not get a prefix any more; `names` are the entries that had been warm."""
        had_it = [name for name in slot.names if name in names]
        self._emit_each(had_it, "entry.lost", tokens=slot.tokens, cause=cause)

    def failed(self, name: str, state: str, reason: str, *, retry_in: float | None = None) -> None:
        """An entry is not warm, why, and in how many seconds it is tried again."""
        self._emit(make_event("entry.failed", entry=name, state=state, reason=reason, retry_in_s=retry_in))

    def problem(self, name: str, error: RenderError) -> None:
        """An entry cannot be rendered, or changes by itself."""
        if isinstance(error, VolatileError):
            self._emit(make_event("entry.volatile", entry=name, position=error.position, reason=str(error)))
        else:
            self.failed(name, problem_status(name, error).state, str(error))

    def dropped(self, slot: Slot, reason: str | None) -> None:
        """A prefix was freed, and why, if not because nobody wants it any more."""
        self._emit_each(slot.names, "entry.dropped", tokens=slot.tokens, reason=reason)
