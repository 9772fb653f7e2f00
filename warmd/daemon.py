"""The loop: compare what is wanted with what the engine holds, and act on the difference.

Nothing here reacts to what an event says. A saved file, a loaded model, a lost prefix and a retry that has
come due all do the same: they set one signal, and the next reconcile looks at the document, the engine's
identity and its holdings as they are then. So an event that is lost or comes twice changes nothing.
"""

from __future__ import annotations

import functools
import math
import os
import random
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import anyio
from anyio.abc import TaskGroup, TaskStatus

from warmd import __version__
from warmd.admission import is_too_much
from warmd.again import choose
from warmd.clock import Clock, DayWatch
from warmd.crash.quarantine import Quarantine
from warmd.engines.base import Engine, EngineDiedError, Identity, Reported
from warmd.errors import ElsewhereError
from warmd.events import Emit
from warmd.ledger import Ledger, Slot
from warmd.losses import Losses
from warmd.memory.readings import Memory
from warmd.memory.watch import MemoryWatch
from warmd.plan import Plan
from warmd.planner import Planner
from warmd.prompts.document import Document
from warmd.proof import Prover
from warmd.reload import Reloader
from warmd.renders import Renders
from warmd.settings import Settings
from warmd.status import DocumentStatus, Statistics
from warmd.tell import Teller
from warmd.traffic import Traffic
from warmd.trigger import Signal
from warmd.vigil import Vigil
from warmd.warming import Turnstile, Warmer


class Daemon:
    """Keeps the entries of one warm-prompts file warm in one engine.

    Args:
        engine: Where to warm.
        path: The warm-prompts file; it may be missing for now.
        settings: Timings and bounds.
        emit: Receives every event.
        url: Where the engine serves, as shown to people.
        randomness: Numbers from 0 to 1 for the jitter of retries.
        clock: The local time, without a zone.
        quarantine: What ended the process before; without one nothing is remembered.
        best_rate: The best tokens per second that a model has prefilled here, or None.

    Attributes:
        traffic: What is known of requests.
        is_running: It has said that it has started.
    """

    def __init__(
        self,
        engine: Engine,
        path: Path,
        settings: Settings | None = None,
        *,
        emit: Emit = lambda event: None,
        url: str | None = None,
        randomness: Callable[[], float] = random.random,
        clock: Clock = datetime.now,
        quarantine: Quarantine | None = None,
        best_rate: Callable[[str], float | None] = lambda model: None,
    ) -> None:
        self._engine = engine
        self._settings = settings or Settings()
        self._url = url
        self._randomness = randomness
        self._clock = clock
        self._quarantine = quarantine or Quarantine()
        self._best_rate = best_rate
        self._tell = Teller(emit)
        self._signal = Signal()
        self._reloader = Reloader(path, self._settings, emit=emit, on_change=self._signal.set)
        self._started = time.monotonic()
        self._tasks: TaskGroup
        self._is_ready = self._is_resumed = False
        self.is_running = False
        self._last_model: str | None = None
        self._generation = 0
        self._turnstile = Turnstile(self._settings.warm.concurrency, self._fill)
        self._memory_watch = MemoryWatch(self._tell)
        self._losses = Losses(self._tell, self._settings.warm.rewarms_per_hour)
        self._warmer: Warmer | None = None
        self.traffic = Traffic(self._tell)
        interval = self._settings.warm.prove
        self._prover = Prover(engine, lambda: self._ledger.slots, self._on_lost, interval)
        self._day_watch = DayWatch(clock, self._settings.watch.rehash, self._signal.set)
        engine.follow(self.traffic.request)
        self._forget(None)

    def _forget(self, identity: Identity | None) -> None:
        """Start over: nothing known for one model holds for another."""
        self._identity = identity
        self._ledger = Ledger()
        self._renders = Renders(self._engine, identity, self._clock)
        self._day_watch.follow(())
        self._planner = Planner(self._engine, self._ledger)
        self.traffic.forget()

    @property
    def engine(self) -> Engine:
        """Where it warms."""
        return self._engine

    @property
    def document(self) -> Document | None:
        """The document in force."""
        return self._reloader.document

    def statistics(self) -> Statistics:
        """What the daemon knows now."""
        entries = self._ledger.statuses(self._reloader.document, self._engine.held())
        is_seen = self._engine.sees_requests
        return Statistics(
            version=__version__,
            pid=os.getpid(),
            uptime_s=time.monotonic() - self._started,
            model=self._identity.model if self._identity else None,
            document=self._reloader.status,
            entries=entries if is_seen else tuple(entry.without_requests() for entry in entries),
            memory=self._engine.memory(),
            live=replace(self.traffic.counts) if is_seen else None,
            paused=self.is_paused,
            suggestions=tuple(self.traffic.suggestions.found()) if is_seen else None,
            disk=self._engine.disk(),
            url=self._url,
            server=self._engine.server(),
        )

    # --- asked for by a person -------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Nothing is warmed until `resume`."""
        return self._turnstile.is_closed

    def pause(self) -> None:
        """Warm nothing until `resume`; what is being warmed stops at its next chunk."""
        if not self.is_paused:
            self._turnstile.is_closed = True
            self._tell.paused()
        if self._warmer is not None:
            self._warmer.cancel(self._warmer.in_flight)

    def resume(self) -> None:
        """Go on warming, by a plan that counts what was done before."""
        if self.is_paused:
            self._turnstile.is_closed = False
            self._is_resumed = True
            self._tell.resumed()
            self._signal.set()

    def rewarm(self, names: Collection[str] = ()) -> list[str]:
        """Render entries anew, free what is held of them and warm them again; returns their names.

        Args:
            names: Which; all of them where it is empty.

        Raises:
            UnknownEntryError: No entry has one of the names.
        """
        entries = choose(self._reloader.document, names)
        self._renders.renew(entry.digest for entry in entries)
        found = [entry.name for entry in entries]
        if self._warmer is not None:
            keys = self._ledger.keys_of(found)
            self._quarantine.forgive(keys, self._identity)
            self._tasks.start_soon(self._quarantine.save)
            self._warmer.renew(keys)
        self._signal.set()
        return found

    async def reload(self) -> DocumentStatus:
        """Look at the file now, whatever the system's events say; how things are with it then."""
        return await self._reloader.look()

    def report(self) -> None:
        """Log how things are, in one line."""
        self._tell.reported(self.statistics())

    # --- running ---------------------------------------------------------------------------------

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled.

        Raises:
            EngineDiedError: The engine cannot go on.
        """
        self._tell.started(self._reloader.path, type(self._engine).__name__)
        self.is_running = True
        died: list[EngineDiedError] = []
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._quarantine.save)
                tasks.start_soon(self._reloader.run)
                tasks.start_soon(self._follow_engine)
                tasks.start_soon(self._follow_memory)
                tasks.start_soon(self._prover.run)
                tasks.start_soon(self._day_watch.run)
                tasks.start_soon(self._reconcile_forever)
                task_status.started()
        except* EngineDiedError as group:
            died = _leaves(group)
        if died:
            raise died[0]

    async def _follow_engine(self) -> None:
        while True:
            await self._engine.changed()
            self._signal.set()

    async def _follow_memory(self) -> None:
        """Look at the memory now and then: what was put off may fit, or what is held be too much."""
        while True:
            await anyio.sleep(self._settings.memory.look)
            memory = self._memory_watch.look(self._engine)
            if memory is not None and (is_too_much(memory) or self._ledger.has_deferred()):
                self._signal.set()

    async def _reconcile_forever(self) -> None:
        while True:
            await self._reconcile()
            waiting = self._ledger.waiting(anyio.current_time())
            with anyio.move_on_after(min(waiting.values(), default=math.inf)):
                await self._signal.wait()

    # --- read, plan, apply -----------------------------------------------------------------------

    async def _reconcile(self) -> None:
        document, identity = self._reloader.document, self._engine.identity
        if identity != self._identity:
            self._switch(identity)
        warmer = self._warmer
        if identity is None or warmer is None:
            return
        if document is None:
            if self._reloader.status.seen:
                self._report_ready(entries=0)
            return
        generation = self._reloader.status.accepted
        if not await self._renders.update(document.entries, lambda: self._is_overtaken(document)):
            self._signal.set()
            return
        self._day_watch.follow(self._renders.days)
        self._update_ledger(document, warmer)
        memory = self._memory_watch.look(self._engine)
        warmer.cancel(warmer.in_flight - self._ledger.slots.keys())
        plan = self._planner.make(document, warmer, memory)
        self._report_plan(plan, generation, warmer)
        self._apply(plan, warmer, memory)
        self._report_ready(len(document.entries))
        warmer.fill()

    def _switch(self, identity: Identity | None) -> None:
        if self._warmer is not None:
            self._warmer.retire()
        self._forget(identity)
        self._warmer = Warmer(
            self._engine,
            self._ledger,
            self._tell,
            self._tasks,
            self._turnstile,
            self._quarantine,
            functools.partial(self._watch_over, identity),
            on_change=self._signal.set,
            on_idle=lambda: self._reloader.mark_applied(self._generation),
            room_delay=self._settings.memory.look,
            randomness=self._randomness,
        )
        model = identity.model if identity else None
        # That a server elsewhere has gone is told where it was found out, and with the reason.
        is_told = model is None and self._engine.server() is not None
        if self._last_model is not None and not is_told:
            self._tell.model_changed(model, self._last_model)
        self._last_model = model or self._last_model
        if identity is not None and identity.unwarmable is not None:
            self._tell.unwarmable(identity)

    def _watch_over(self, identity: Identity | None, slot: Slot) -> Vigil:
        model = identity.model if identity else ""
        return Vigil(slot, self._engine, self._tell, self._settings.warm, lambda: self._best_rate(model))

    def _is_overtaken(self, document: Document) -> bool:
        return self._reloader.document is not document or self._engine.identity != self._identity

    def _update_ledger(self, document: Document, warmer: Warmer) -> None:
        before, warm_before = self._ledger.problems, self._ledger.warm_names()
        self._ledger.update(document, self._renders.found)
        self.traffic.follow(self._ledger.slots, self._ledger.retired)
        is_told = self._identity is not None and self._identity.unwarmable is not None
        for name, error in self._ledger.problems.items():
            is_news = str(before.get(name)) != str(error) and not isinstance(error, ElsewhereError)
            if is_news and not is_told:
                self._tell.problem(name, error)
        held = warmer.held()
        for key, slot in self._ledger.slots.items():
            if slot.state == "pending":
                self._keep_away(key, slot)
            if slot.state in ("warm", "stored_not_served") and key not in held:
                self._losses.note(slot, warm_before, "the engine no longer holds it")
            elif slot.state == "warm":
                # Entries that came to share a prefix which is warm are warm without any work.
                warmed = Reported(slot.tokens, 0, slot.tokens, held[key].kv_bytes)
                self._tell.warmed(warmed, 0.0, [n for n in slot.names if n not in warm_before])

    def _keep_away(self, key: str, slot: Slot) -> None:
        """Put a prefix that ended the process too often aside."""
        reason = self._quarantine.reason(key, self._identity)
        if reason is not None:
            slot.mark_quarantined(reason)
            for name in slot.names:
                self._tell.failed(name, slot.state, reason)

    def _on_lost(self, key: str, cached: int) -> None:
        """A proof has failed."""
        if self._renders.is_outdated:
            # Nothing is lost: a request of today begins with another date.
            self._signal.set()
            return
        slot = self._ledger.slots[key]
        self.rewarm(slot.names)
        self._losses.note(slot, slot.names, f"a request finds {cached} of {slot.tokens} tokens in the cache")

    def _apply(self, plan: Plan, warmer: Warmer, memory: Memory | None) -> None:
        is_told = memory is not None and memory.blocked is not None
        for key, shortage in plan.short.items():
            warmer.defer(self._ledger.slots[key], shortage, is_told=is_told)
        for item in plan.warm:
            # Should it find no room after all, that is news.
            self._ledger.slots[item.key].mark_pending()
        self._planner.declare(plan)
        warmer.carry_out(plan)
        kept_for_now = {drop.key for drop in plan.drop}
        for key in [key for key in self._ledger.retired if key not in kept_for_now]:
            del self._ledger.retired[key]

    def _fill(self) -> None:
        if self._warmer is not None:
            self._warmer.fill()

    # --- reporting -------------------------------------------------------------------------------

    def _report_plan(self, plan: Plan, generation: int, warmer: Warmer) -> None:
        is_news = generation != self._generation or not self._is_ready
        is_news = is_news or any(self._is_resumed or item.key not in warmer.queued for item in plan.warm)
        # What waits for its replacement has been told when that was planned.
        is_news = is_news or any(drop.after is None for drop in plan.drop)
        self._generation, self._is_resumed = generation, False
        if is_news:
            costs = self._planner.costs(plan)
            known = all(self._ledger.slots[cost.key].prefix.size is not None for cost in costs)
            self._tell.plan(plan, generation, self._planner.foresee(costs, warmer) if known else None)
            for cost in costs if known else ():
                self._tell.planned(self._ledger.slots[cost.key], cost)

    def _report_ready(self, entries: int) -> None:
        if not self._is_ready:
            self._is_ready = True
            model = self._identity.model if self._identity else None
            self._tell.ready(model, entries, self._url)


def _leaves(group: BaseExceptionGroup[EngineDiedError]) -> list[EngineDiedError]:
    """The exceptions of a group and of the groups in it."""
    found: list[EngineDiedError] = []
    for error in group.exceptions:
        found.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found
