"""The moving part: one watch after the other, and the wait for settled files.

`run` keeps the watch on the right directories; `settled` compares signatures. They share nothing but two
signals: *look* makes `settled` compare, *check* makes `run` find out whether its directories are still right.
Events set both. They are not trusted: `settled` also compares every `rehash` seconds, and when it then finds
a change that no event announced it has the watch renewed.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Protocol

import anyio
import watchfiles
from anyio.abc import TaskStatus

from warmd.backoff import retry_delay
from warmd.blocking import Blocking
from warmd.settings import WatchSettings
from warmd.trigger import Signal
from warmd.watch.places import Arming, arming, returned, watched_paths, without_identity
from warmd.watch.reports import Degraded, Look, Rearmed, WatchStatistics
from warmd.watch.settle import Settling, is_overdue, quiet_before
from warmd.watch.signature import Signature, signature, unreachable

STEP_MILLISECONDS = 120
"""How often watchfiles looks whether the system reported anything; it tells after one or two steps.

Each step costs about 70 microseconds of CPU time, which is most of what an idle watch costs."""

POLL_PERIOD = 0.5
"""Seconds between two looks without events; with settling it keeps a save within a second."""

STOP_GRACE = 1.0
"""Seconds that an event source gets to obey its stop event before it is cancelled."""

# Reports every change as information, also of files that are none of ours, and also into our own log file.
logging.getLogger("watchfiles").setLevel(logging.WARNING)


class EventSource(Protocol):
    """`watchfiles.awatch`, as far as it is used here."""

    def __call__(self, *paths: Any, **options: Any) -> AsyncIterator[Collection[tuple[object, str]]]:
        """Yield the changes (kind, path) in these directories (`Path`) until `options["stop_event"]` is set.

        Raises:
            Exception: Of any kind, when the directories cannot be watched.
        """


class Watcher:
    """Tells when a set of files, which may change at any time, should be looked at.

    For one event loop, one `run` and one waiter in `settled`.

    Args:
        settings: Timings.
        on_rearmed: Called when a directory that was missing or replaced is watched again.
        on_degraded: Called when events cannot be had, once for each reason.
        events: Where events come from.
    """

    def __init__(
        self,
        settings: WatchSettings,
        on_rearmed: Callable[[Rearmed], None] = lambda rearmed: None,
        on_degraded: Callable[[Degraded], None] = lambda degraded: None,
        events: EventSource = watchfiles.awatch,
    ) -> None:
        self._settings = settings
        self._on_rearmed = on_rearmed
        self._on_degraded = on_degraded
        self._events = events
        self._blocking = Blocking(settings.timeout)
        self._files: tuple[Path, ...] = ()
        self._seen: Signature = ()
        self._recheck_at = math.inf
        self._armed: Arming = frozenset()
        self._is_deaf = False
        self._is_asked = False
        self._error: Exception | None = None
        self._reported: set[str] = set()
        self._look = Signal()
        self._check = Signal()
        self._armings = self._batches = self._looks = 0
        self._last_event_at: float | None = None
        self._last_check_at: float | None = None
        self._missed_event_at: float | None = None

    def statistics(self) -> WatchStatistics:
        """What has been done, and what is watched now."""
        directories = tuple(watched_paths(self._armed))
        return WatchStatistics(
            directories,
            self._armings,
            self._batches,
            self._looks,
            self._is_polling,
            self._last_event_at,
            self._last_check_at,
            self._missed_event_at,
        )

    def follow(self, files: Collection[Path], seen: Signature) -> None:
        """Watch these files from now on.

        Args:
            files: Absolute paths; they need not exist.
            seen: Their `signature`, taken before they were read, so that a change during the read is noticed.
        """
        if (tuple(files), seen) == (self._files, self._seen):
            return
        self._files, self._seen = tuple(files), seen
        self._recheck_at = anyio.current_time() + self._settings.rehash
        self._look.set()
        self._check.set()

    def ask(self) -> None:
        """Let `settled` return at once, even if nothing seems to have changed."""
        self._is_asked = True
        self._look.set()

    # --- is it time to look? ---------------------------------------------------------------------

    async def settled(self) -> Look:
        """Return once the files differ from what was seen, and are quiet or the ceiling is reached.

        Each signature given to `follow` is also followed by one recheck at a later tick, because two writes
        within the precision of the file system's times look the same.
        """
        look = await self._next_look()
        self._looks += 1
        return look

    async def _next_look(self) -> Look:
        was_told = True
        while True:
            current = await self._signature()
            if current != self._seen:
                self._is_asked = False
                if not was_told:
                    self._renew(current)
                return await self._settle(current, was_told)
            if self._is_asked or anyio.current_time() >= self._recheck_at:
                self._is_asked = False
                self._recheck_at = math.inf
                return Look(is_recheck=True)
            was_told = await self._told()

    async def _told(self) -> bool:
        """Wait for a reason to compare; False when it is only that time has passed."""
        with anyio.move_on_after(POLL_PERIOD if self._is_polling else self._settings.rehash):
            await self._look.wait()
            return True
        return False

    async def _settle(self, current: Signature, was_told: bool) -> Look:
        now, settle = anyio.current_time(), self._settings.settle
        quiet = quiet_before(self._seen, current, time.time(), settle) if was_told else 0.0
        settling = Settling(current, began=now, quiet_since=now - quiet)
        while (look := settling.verdict(now, self._settings)) is None:
            await anyio.sleep(settling.delay(now, self._settings))
            latest = await self._signature()
            now = anyio.current_time()
            settling = settling.observe(latest, now)
        return look

    async def _signature(self) -> Signature:
        try:
            found = await self._blocking.run(signature, self._files)
        except TimeoutError:
            return unreachable(self._files)
        self._last_check_at = time.time()
        return found

    # --- keeping a watch on the right directories ------------------------------------------------

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Feed `settled` with events until cancelled."""
        task_status.started()
        while True:
            self._is_deaf = False
            self._arm(await self._wanted())
            await self._watch()

    async def _wanted(self) -> Arming:
        try:
            return await self._blocking.run(arming, self._files)
        except TimeoutError:
            return self._armed

    def _arm(self, wanted: Arming) -> None:
        before, self._armed = self._armed, wanted
        for directory in returned(before, wanted):
            self._on_rearmed(Rearmed(directory))

    async def _watch(self) -> None:
        """Watch the armed directories until others are wanted."""
        stop = anyio.Event()
        async with anyio.create_task_group() as tasks:
            # Shielded: cancelling awatch takes seconds, its own stop event milliseconds.
            shield = anyio.CancelScope(shield=True)
            tasks.start_soon(self._feed, stop, shield)
            # Both signals are acted on after the feed's first step, so they find what changed before there
            # was a watch.
            self._look.set()
            self._check.set()
            try:
                await self._until_obsolete()
            finally:
                stop.set()
                shield.deadline = anyio.current_time() + STOP_GRACE

    async def _until_obsolete(self) -> None:
        while True:
            await self._check.wait()
            if await self._wanted() != self._armed or self._is_deaf:
                return
            # Only now: a directory that vanished while it was being armed is no failure.
            self._report_degraded()

    async def _feed(self, stop: anyio.Event, shield: anyio.CancelScope) -> None:
        """Turn events into signals; try again, ever more rarely, while there are none to be had."""
        failures = 0
        with shield:
            while not stop.is_set():
                batches, self._error = self._batches, None
                try:
                    await self._receive(stop)
                except Exception as error:  # noqa: BLE001 - whatever the system refuses, polling goes on
                    failures = 1 if self._batches > batches else failures + 1
                    self._error = error
                    self._look.set()
                    self._check.set()
                    with anyio.move_on_after(retry_delay(failures, 0.5)):
                        await stop.wait()

    async def _receive(self, stop: anyio.Event) -> None:
        paths = watched_paths(self._armed)
        if paths and not self._settings.poll:
            self._armings += 1
            async for changes in self._events(
                *paths,
                watch_filter=None,
                recursive=False,
                debounce=STEP_MILLISECONDS,
                step=STEP_MILLISECONDS,
                rust_timeout=0,
                stop_event=stop,
                ignore_permission_denied=True,
            ):
                self._batches, self._last_event_at = self._batches + 1, time.time()
                self._notice(changes)
        await stop.wait()

    def _notice(self, changes: Iterable[tuple[object, str]]) -> None:
        lost = {Path(path) for kind, path in changes if kind == watchfiles.Change.deleted}
        self._armed = without_identity(self._armed, lost)
        self._look.set()
        self._check.set()

    def _renew(self, current: Signature) -> None:
        """A change came without an event: the watch is deaf (sleep, bind mount), and a new one may hear."""
        self._is_deaf = not self._is_polling
        # The tick may only have been quicker than the event.
        if self._is_deaf and is_overdue(self._seen, current, time.time()):
            self._missed_event_at = time.time()
        self._check.set()

    @property
    def _is_polling(self) -> bool:
        return self._settings.poll or self._error is not None

    def _report_degraded(self) -> None:
        reason = f"{type(self._error).__name__}: {self._error}"
        if self._error is not None and reason not in self._reported:
            self._reported.add(reason)
            self._on_degraded(Degraded(reason))
