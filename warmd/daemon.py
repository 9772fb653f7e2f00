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
from warmd.engines.base import Engine, EngineDiedError, Identity
from warmd.events import Emit
from warmd.ledger import Ledger, Slot
from warmd.losses import Losses
from warmd.memory.watch import MemoryWatch
from warmd.prompts.document import Document
from warmd.proof import Prover
from warmd.reload import Reloader
from warmd.settings import Settings
from warmd.status import DocumentStatus, Statistics
from warmd.tell import Teller
from warmd.tenure import Tenure
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
        self._tenure: Tenure | None = None
        self._is_ready = self._is_resumed = False
        self.is_running = False
        self._last_model: str | None = None
        self._generation = 0
        self._turnstile = Turnstile(self._settings.warm.concurrency, self._fill)
        self._memory_watch = MemoryWatch(self._tell)
        self._losses = Losses(self._tell, self._settings.warm.rewarms_per_hour)
        self.traffic = Traffic(self._tell)
        interval = self._settings.warm.prove
        self._prover = Prover(engine, lambda: self._ledger.slots, self._on_lost, interval)
        self._day_watch = DayWatch(clock, self._settings.watch.rehash, self._signal.set)
        engine.follow(self.traffic.request)

    @property
    def engine(self) -> Engine:
        """Where it warms."""
        return self._engine

    @property
    def document(self) -> Document | None:
        """The document in force."""
        return self._reloader.document

    @property
    def _identity(self) -> Identity | None:
        """The model that is known to be there."""
        return self._tenure.identity if self._tenure is not None else None

    @property
    def _ledger(self) -> Ledger:
        """What is known of each prefix with it."""
        return self._tenure.ledger if self._tenure is not None else Ledger()

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
        if self._tenure is not None:
            self._tenure.warmer.cancel(self._tenure.warmer.in_flight)

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
        if self._tenure is not None:
            self._tenure.renew(entries)
            self._tasks.start_soon(self._quarantine.save)
        self._signal.set()
        return [entry.name for entry in entries]

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
        tenure = self._tenure
        if tenure is None:
            return
        if document is None:
            if self._reloader.status.seen:
                self._report_ready(entries=0)
            return
        generation = self._reloader.status.accepted
        if not await tenure.renders.update(document.entries, lambda: self._is_overtaken(document)):
            self._signal.set()
            return
        self._day_watch.follow(tenure.renders.days)
        tenure.take_over(document)
        self.traffic.follow(tenure.ledger.slots, tenure.ledger.retired)
        memory = self._memory_watch.look(self._engine)
        plan = tenure.plan(document, memory)
        is_news = generation != self._generation or not self._is_ready
        self._generation, is_resumed, self._is_resumed = generation, self._is_resumed, False
        tenure.report(plan, generation, is_news=is_news, is_resumed=is_resumed)
        tenure.apply(plan, memory)
        self._report_ready(len(document.entries))
        tenure.warmer.fill()

    def _switch(self, identity: Identity | None) -> None:
        if self._tenure is not None:
            self._tenure.warmer.retire()
        self._tenure = self._begin(identity) if identity is not None else None
        self._day_watch.follow(())
        self.traffic.forget()
        model = identity.model if identity else None
        # That a server elsewhere has gone is told where it was found out, and with the reason.
        is_told = model is None and self._engine.server() is not None
        if self._last_model is not None and not is_told:
            self._tell.model_changed(model, self._last_model)
        self._last_model = model or self._last_model
        if identity is not None and identity.unwarmable is not None:
            self._tell.unwarmable(identity)

    def _begin(self, identity: Identity) -> Tenure:
        return Tenure(
            identity, self._engine, self._clock, self._tell, self._quarantine, self._losses, self._make_warmer
        )

    def _make_warmer(self, identity: Identity, ledger: Ledger) -> Warmer:
        return Warmer(
            self._engine,
            ledger,
            self._tell,
            self._tasks,
            self._turnstile,
            self._quarantine,
            functools.partial(self._watch_over, identity.model),
            on_change=self._signal.set,
            on_idle=lambda: self._reloader.mark_applied(self._generation),
            room_delay=self._settings.memory.look,
            randomness=self._randomness,
        )

    def _watch_over(self, model: str, slot: Slot) -> Vigil:
        return Vigil(slot, self._engine, self._tell, self._settings.warm, lambda: self._best_rate(model))

    def _is_overtaken(self, document: Document) -> bool:
        return self._reloader.document is not document or self._engine.identity != self._identity

    def _on_lost(self, key: str, cached: int) -> None:
        """A proof has failed."""
        if self._tenure is None or self._tenure.renders.is_outdated:
            # Nothing is lost: a request of today begins with another date.
            self._signal.set()
            return
        slot = self._tenure.ledger.slots[key]
        # The file may have changed since; that what is wanted no more is lost is no matter.
        wanted = {entry.name for entry in (self.document.entries if self.document else ())}
        names = [name for name in slot.names if name in wanted]
        if not names:
            return
        self.rewarm(names)
        self._losses.note(slot, names, f"a request finds {cached} of {slot.tokens} tokens in the cache")

    def _fill(self) -> None:
        if self._tenure is not None:
            self._tenure.warmer.fill()

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
