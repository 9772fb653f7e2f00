"""The loop: compare what is wanted with what the engine holds, and act on the difference.

Nothing here reacts to what an event says. A saved file, a loaded model, a lost prefix and a retry that has
come due all do the same: they set one signal, and the next reconcile looks at the document, the engine's
identity and its holdings as they are then. So an event that is lost or comes twice changes nothing.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import anyio
from anyio.abc import TaskGroup, TaskStatus

from warmd import __version__
from warmd.backoff import retry_delay
from warmd.config import Settings
from warmd.engines.base import Engine, EngineDiedError, Held, Identity, Warmed
from warmd.errors import RenderError
from warmd.events import Emit
from warmd.ledger import Ledger, Rendered, Slot, problem_status
from warmd.plan import Plan, Wanted, make_plan
from warmd.prompts.document import Document, Entry
from warmd.reload import Reloader
from warmd.status import Statistics
from warmd.tell import Teller
from warmd.trigger import Signal


class Daemon:
    """Keeps the entries of one warm-prompts file warm in one engine.

    Args:
        engine: Where to warm.
        path: The warm-prompts file; it may be missing for now.
        settings: Timings and bounds.
        emit: Receives every event.
        url: Where the engine serves, as shown to people.
        randomness: Numbers from 0 to 1 for the jitter of retries.
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
    ) -> None:
        self._engine = engine
        self._settings = settings or Settings()
        self._url = url
        self._randomness = randomness
        self._tell = Teller(emit)
        self._signal = Signal()
        self._reloader = Reloader(path, self._settings, emit=emit, on_change=self._signal.set)
        self._started = time.monotonic()
        self._tasks: TaskGroup
        self._is_ready = False
        self._last_model: str | None = None
        self._generation = 0
        self._running = 0
        self._forget(None)

    def _forget(self, identity: Identity | None) -> None:
        """Start over: nothing known for one model holds for another."""
        self._identity = identity
        self._ledger = Ledger()
        self._renders: dict[str, Rendered] = {}
        self._queue: list[Wanted] = []
        self._in_flight: dict[str, anyio.CancelScope] = {}
        self._drop_after: dict[str, list[str]] = {}
        self._dropping: set[str] = set()

    def statistics(self) -> Statistics:
        """What the daemon knows now."""
        return Statistics(
            version=__version__,
            pid=os.getpid(),
            uptime_s=time.monotonic() - self._started,
            model=self._identity.model if self._identity else None,
            document=self._reloader.status,
            entries=self._ledger.statuses(self._held()),
        )

    # --- running ---------------------------------------------------------------------------------

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled.

        Raises:
            EngineDiedError: The engine cannot go on.
        """
        self._tell.started(self._reloader.path, type(self._engine).__name__)
        died: list[EngineDiedError] = []
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._reloader.run)
                tasks.start_soon(self._follow_engine)
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
        if identity is None:
            return
        if document is None:
            if self._reloader.status.seen:
                self._report_ready(entries=0)
            return
        generation = self._reloader.status.accepted
        if not await self._render_all(document):
            self._signal.set()
            return
        self._update_ledger(document)
        plan = self._make_plan(document)
        self._report_plan(plan, generation)
        self._apply(plan)
        self._report_ready(len(document.entries))
        self._fill()

    def _switch(self, identity: Identity | None) -> None:
        for scope in self._in_flight.values():
            scope.cancel()
        self._forget(identity)
        model = identity.model if identity else None
        if self._last_model is not None:
            self._tell.model_changed(model, self._last_model)
        self._last_model = model or self._last_model

    def _is_overtaken(self, document: Document) -> bool:
        return self._reloader.document is not document or self._engine.identity != self._identity

    async def _render_all(self, document: Document) -> bool:
        """Render what has not been rendered with this model; False when overtaken by something newer."""
        for entry in document.entries:
            if self._is_overtaken(document):
                return False
            if entry.digest not in self._renders:
                self._renders[entry.digest] = await self._render(entry)
        digests = {entry.digest for entry in document.entries}
        self._renders = {digest: done for digest, done in self._renders.items() if digest in digests}
        return not self._is_overtaken(document)

    async def _render(self, entry: Entry) -> Rendered:
        try:
            return await self._engine.render(entry)
        except RenderError as error:
            return error
        except EngineDiedError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever one entry does to a template, the others go on
            # The foreign message may quote the prompt; its type does not.
            return RenderError(f"rendering failed with {type(error).__name__}")

    def _update_ledger(self, document: Document) -> None:
        before, warm_before = self._ledger.problems, self._ledger.warm_names()
        self._ledger.update(document, self._renders)
        for name, error in self._ledger.problems.items():
            if str(before.get(name)) != str(error):
                status = problem_status(name, error)
                self._tell.failed(name, status.state, str(error))
        held = self._held()
        for key, slot in self._ledger.slots.items():
            if slot.state in ("warm", "stored_not_served") and key not in held:
                slot.mark_pending()
                self._tell.lost(slot, warm_before)
            elif slot.state == "warm":
                # Entries that came to share a prefix which is warm are warm without any work.
                size = len(slot.prefix)
                warmed = Warmed(size, 0, size, held[key].kv_bytes)
                self._tell.warmed(warmed, 0.0, [n for n in slot.names if n not in warm_before])

    def _make_plan(self, document: Document) -> Plan:
        for key in [key for key in self._in_flight if key not in self._ledger.slots]:
            self._in_flight.pop(key).cancel()
        return make_plan(
            self._ledger.wanted(document),
            self._held(),
            in_flight=self._in_flight,
            waiting=self._ledger.waiting(anyio.current_time()),
            previous=self._ledger.previous(),
        )

    def _apply(self, plan: Plan) -> None:
        self._queue = list(plan.warm)
        self._drop_after = {}
        for drop in plan.drop:
            if drop.after is not None:
                self._drop_after.setdefault(drop.after, []).append(drop.key)
        self._drop([drop.key for drop in plan.drop if drop.after is None])
        kept_for_now = {drop.key for drop in plan.drop}
        for key in [key for key in self._ledger.retired if key not in kept_for_now]:
            del self._ledger.retired[key]

    def _drop(self, keys: list[str]) -> None:
        """Begin to free prefixes; the engine may be too busy to do it now, which holds up nothing else."""
        slots = [self._ledger.retired.pop(key, None) for key in keys]
        if keys:
            self._dropping.update(keys)
            self._tasks.start_soon(self._free, keys, [slot for slot in slots if slot is not None])

    async def _free(self, keys: list[str], slots: list[Slot]) -> None:
        await self._engine.drop(keys)
        self._dropping.difference_update(keys)
        for slot in slots:
            self._tell.dropped(slot)
        self._fill()

    def _held(self) -> dict[str, Held]:
        """What the engine holds and is not about to free."""
        return {key: held for key, held in self._engine.held().items() if key not in self._dropping}

    # --- warming ---------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Start as many warmings as the bound allows; note when nothing is left to do."""
        while self._queue and self._running < self._settings.warm.concurrency:
            self._start(self._queue.pop(0))
        if not (self._queue or self._in_flight or self._dropping):
            self._reloader.mark_applied(self._generation)

    def _start(self, wanted: Wanted) -> None:
        slot, scope = self._ledger.slots[wanted.key], anyio.CancelScope()
        self._in_flight[wanted.key] = scope
        # Counts cancelled warmings that have not ended yet, too: the bound holds across reloads.
        self._running += 1
        slot.mark_warming()
        self._tell.warming(slot)
        self._tasks.start_soon(self._warm, wanted.key, slot, scope)

    async def _warm(self, key: str, slot: Slot, scope: anyio.CancelScope) -> None:
        identity = self._identity
        try:
            with scope:
                await self._warm_and_verify(key, slot)
        except EngineDiedError:
            raise
        except Exception as error:  # noqa: BLE001 - one failed warming must not end the others
            # A model that goes away takes its warmings with it; that is no failure of theirs.
            if self._engine.identity == identity:
                self._fail(slot, error)
        finally:
            self._running -= 1
            if self._in_flight.get(key) is scope:
                del self._in_flight[key]
            elif slot.state == "warming" and key not in self._in_flight:
                slot.mark_pending()
        # Not reached when the daemon itself is told to stop.
        if scope.cancel_called:
            # It may have been held in the same moment.
            self._signal.set()
        self._fill()

    async def _warm_and_verify(self, key: str, slot: Slot) -> None:
        def on_progress(done: int) -> None:
            slot.done_tokens = done

        began = time.perf_counter()
        warmed = await self._engine.warm(slot.prefix, on_progress)
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
        delay = retry_delay(slot.failures + 1, self._randomness())
        reason = f"warming failed with {type(error).__name__}"
        slot.mark_failed(reason, not_before=anyio.current_time() + delay)
        for name in slot.names:
            self._tell.failed(name, "failed", reason, retry_in=round(delay, 3))
        self._signal.set()

    # --- reporting -------------------------------------------------------------------------------

    def _report_plan(self, plan: Plan, generation: int) -> None:
        queued = {wanted.key for wanted in self._queue}
        is_news = generation != self._generation or not self._is_ready
        is_news = is_news or any(wanted.key not in queued for wanted in plan.warm) or bool(plan.drop)
        self._generation = generation
        if is_news:
            self._tell.plan(plan, generation)

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
