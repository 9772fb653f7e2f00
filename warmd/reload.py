"""Follows the warm-prompts file: reads it when it may have changed, and keeps the last good document."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio

from warmd.blocking import Blocking
from warmd.events import Emit, make_event
from warmd.prompts import Document, FileError, InvalidPromptsError, diff, load_document
from warmd.settings import Settings
from warmd.status import DocumentStatus
from warmd.watch import Degraded, Rearmed, Watcher, signature, unreachable

VANISHED_GRACE = 0.75
"""Seconds that a missing file is given beyond settling: editors delete and rename in two steps."""

UNSETTLED_GRACE = 5.0
"""A file that keeps changing is not called invalid before this long: it may be half written."""

Outcome = Document | InvalidPromptsError


class Reloader:
    """Owns the current document and its generation numbers.

    Args:
        path: The warm-prompts file.
        settings: Timings and the size cap.
        emit: Receives `prompts.accepted`, `prompts.rejected`, `prompts.unchanged` and `watch.…`.
        on_change: Called after each new revision, accepted or not.
        load: Reads a file.
    """

    def __init__(
        self,
        path: Path,
        settings: Settings,
        *,
        emit: Emit,
        on_change: Callable[[], None],
        load: Callable[..., Document] = load_document,
    ) -> None:
        self.path = Path(path).expanduser().absolute()
        self.document: Document | None = None
        self._status = DocumentStatus(self.path)
        self._settings = settings
        self._emit = emit
        self._load_document = load
        self._on_change = on_change
        self._last: tuple[object, ...] | None = None
        self._files: tuple[Path, ...] = (self.path,)
        self._asking: list[anyio.Event] = []
        self._blocking = Blocking(settings.watch.timeout)
        self._watcher = Watcher(settings.watch, on_rearmed=self._rearmed, on_degraded=self._degraded)

    @property
    def status(self) -> DocumentStatus:
        """How things are with the file, and with the watch over it."""
        watch = self._watcher.statistics()
        return replace(
            self._status,
            last_event_at=watch.last_event_at,
            last_check_at=watch.last_check_at,
            missed_event_at=watch.missed_event_at,
        )

    async def run(self) -> None:
        """Follow the file until cancelled."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._watcher.run)
            await self._follow()

    def mark_applied(self, generation: int) -> None:
        """All that this generation asked for is done."""
        self._status = replace(self._status, applied=generation)

    async def look(self) -> DocumentStatus:
        """Read the file now; how things are with it once that is done."""
        done = anyio.Event()
        self._asking.append(done)
        self._watcher.ask()
        await done.wait()
        return self.status

    async def _follow(self) -> None:
        asked: list[anyio.Event] = []
        unsettled_since: float | None = None
        is_changing = False
        while True:
            # Whoever asks from here on may have changed the file since, and is answered by the next read.
            asked, self._asking = asked + self._asking, []
            outcome = await self._read()
            now = anyio.current_time()
            unsettled_since = (unsettled_since or now) if is_changing else None
            may_be_half_written = unsettled_since is not None and now - unsettled_since < UNSETTLED_GRACE
            if isinstance(outcome, Document) or not may_be_half_written:
                if not self._take(outcome) and asked:
                    self._tell_unchanged(outcome)
                for done in asked:
                    done.set()
                asked = []
            look = await self._watcher.settled()
            is_changing = look.still_changing

    async def _read(self) -> Outcome:
        try:
            outcome = await self._read_once()
            if isinstance(outcome, InvalidPromptsError) and not await self._blocking.run(self.path.exists):
                await anyio.sleep(VANISHED_GRACE)
                outcome = await self._read_once()
        except TimeoutError:
            # Whatever they look like once they can be reached, that is a change.
            self._watcher.follow(self._files, unreachable(self._files))
            reason = f"the file system gives no answer within {self._blocking.seconds:g} s"
            return InvalidPromptsError(self.path, [FileError(None, None, "$", reason)], None, self._files)
        return outcome

    async def _read_once(self) -> Outcome:
        """Read the file; what it looked like just before counts as seen, so no later change is missed.

        Raises:
            TimeoutError: The file system does not answer.
        """
        # The signature is taken first and for the files known so far; new includes are looked at again.
        seen = await self._blocking.run(signature, self._files)
        outcome = await self._blocking.run(self._load)
        if set(outcome.files) != set(self._files):
            self._files = outcome.files
            return await self._read_once()
        self._watcher.follow(self._files, seen)
        return outcome

    def _load(self) -> Outcome:
        try:
            return self._load_document(self.path, max_bytes=self._settings.prompts.max_bytes)
        except InvalidPromptsError as error:
            return error
        except Exception as error:  # noqa: BLE001 - nothing in a file may end the daemon
            # Not one of the ways to fail that we know; the message could quote the file.
            reason = FileError(None, None, "$", f"cannot be read ({type(error).__name__})")
            return InvalidPromptsError(self.path, [reason], None, (self.path,))

    def _take(self, outcome: Outcome) -> bool:
        """Take over what was read; False when it is what was read before."""
        identity = (outcome.digest,) if isinstance(outcome, Document) else (outcome.sha256, *outcome.errors)
        if identity == self._last:
            return False
        self._last = identity
        self._status = replace(self._status, seen=self._status.seen + 1, sha256=outcome.sha256)
        if isinstance(outcome, Document):
            self._accept(outcome)
        else:
            self._reject(outcome)
        self._on_change()
        return True

    def _tell_unchanged(self, outcome: Outcome) -> None:
        """Whoever asks for a read wants to see that it has been done."""
        is_valid = isinstance(outcome, Document)
        self._emit(
            make_event(
                "prompts.unchanged",
                level=None if is_valid else "warning",
                generation=self._status.accepted,
                sha256=outcome.sha256,
                valid=is_valid,
            )
        )

    def _accept(self, document: Document) -> None:
        changes = diff(self.document, document)
        generation = self._status.seen
        self.document = document
        self._status = replace(self._status, accepted=generation, accepted_at=time.time(), errors=())
        self._emit(
            make_event(
                "prompts.accepted",
                generation=generation,
                sha256=document.sha256,
                entries=len(document.entries),
                added=changes.added,
                edited=changes.edited,
                removed=changes.removed,
                unchanged=changes.unchanged,
            )
        )

    def _reject(self, error: InvalidPromptsError) -> None:
        self._status = replace(self._status, errors=error.errors)
        self._emit(
            make_event(
                "prompts.rejected",
                sha256=error.sha256,
                kept_generation=self._status.accepted,
                errors=[_error_fields(item) for item in error.errors],
            )
        )

    def _rearmed(self, rearmed: Rearmed) -> None:
        self._emit(make_event("watch.rearmed", directory=str(rearmed.directory)))

    def _degraded(self, degraded: Degraded) -> None:
        self._emit(make_event("watch.degraded", reason=degraded.reason))


def _error_fields(error: FileError) -> dict[str, object]:
    return {"line": error.line, "column": error.column, "path": error.path, "message": error.message}
