"""Marks on disk what is being warmed, and keeps away from what ended the process twice."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from warmd.blocking import Blocking
from warmd.crash.suspects import (
    KEPT,
    Suspect,
    Suspects,
    happened,
    read_suspects_json,
    suspects_json,
    way_out,
)
from warmd.engines.base import Identity
from warmd.events import Emit, make_event
from warmd.files.state import read_json, write_json
from warmd.memory.size import parse_limit

FILE_NAME = "quarantine.json"
MARK_SECONDS = 5.0
"""How long a warming waits for a disk that does not answer before it goes on without its mark."""
JUST_NOW = 10.0
"""Seconds: the time in which a stop may come before the death of the engine that it is for is noticed."""
UNMARK_SECONDS = 1.0
"""How long to wait for a mark to go: a stop waits as well."""


def limit_name(limit: str) -> str:
    """A memory limit as it tells one suspect from another: the same however it is written.

    Raises:
        ValueError: It is none.
    """
    return str(parse_limit(limit) or "auto")


def read_suspects(folder: Path) -> Suspects:
    """What is written in a state folder; nothing where that cannot be read."""
    return read_json(folder / FILE_NAME, read_suspects_json, Suspects())


class Quarantine:
    """Knows what abrupt ends count against. For one event loop.

    Args:
        folder: The state folder, which belongs to this process; None keeps nothing.
        limit: The memory limit, as it is set.
        emit: Receives `entry.suspected` and `state.failed`.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        folder: Path | None = None,
        limit: str = "",
        emit: Emit = lambda event: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._limit = limit
        self._emit = emit
        self._complaint: str | None = None
        self._is_writing = False
        self._written = read_suspects(folder) if folder is not None else Suspects()
        self._suspects = self._written.after_end(clock())
        for suspect in self._suspects.ended:
            if any(suspect.cause == mark.cause for mark in self._written.warming):
                self._tell(suspect)
        self._disk = Blocking(MARK_SECONDS)
        self._broken_off: deque[tuple[float, Suspect]] = deque(maxlen=KEPT)

    def _tell(self, suspect: Suspect) -> None:
        for name in suspect.entries:
            event = make_event("entry.suspected", entry=name, tokens=suspect.tokens, ends=suspect.ends)
            self._emit(event)

    def reason(self, key: str, identity: Identity | None) -> str | None:
        """Why a prefix is not to be warmed for a model, in one line, or None."""
        suspect = self._suspects.find(self._suspect(key, identity).cause)
        if suspect is None or not suspect.is_quarantined:
            return None
        return f"{happened(suspect.ends)}: {way_out()}"

    def _suspect(
        self, key: str, identity: Identity | None, entries: Collection[str] = (), tokens: int = 0
    ) -> Suspect:
        model, fingerprint = (identity.model, identity.fingerprint) if identity is not None else ("", "")
        return Suspect(key, model, self._limit, tuple(entries), tokens, fingerprint=fingerprint)

    @asynccontextmanager
    async def marked(
        self, key: str, identity: Identity | None, entries: Collection[str], tokens: int
    ) -> AsyncIterator[None]:
        """Have it on disk that a prefix is being warmed, before the block and until its end.

        A block that succeeds clears the prefix of what happened before.
        """
        suspect = self._suspect(key, identity, entries, tokens)
        self._suspects = self._suspects.begin(suspect)
        is_done = False
        try:
            await self.save()
            yield
            self.forgive([key], identity)
            is_done = True
        finally:
            self._suspects = self._suspects.stop(suspect.cause)
            if not is_done:
                self._broken_off.append((time.monotonic(), suspect))
            # Also on the way out: a mark that stays is taken for an abrupt end.
            with anyio.move_on_after(UNMARK_SECONDS, shield=True):
                await self.save()

    @property
    def broken_off(self) -> tuple[Suspect, ...]:
        """What was being warmed until just now, and was stopped by nothing of its own."""
        since = time.monotonic() - JUST_NOW
        return tuple(suspect for at, suspect in self._broken_off if at >= since)

    async def engine_died(self) -> None:
        """The engine has died: to what was being warmed it is as if the process had been killed.

        That may be noticed only when the warming has failed or been stopped for it.
        """
        for suspect in self.broken_off:
            self._suspects = self._suspects.begin(suspect)
        await self.save()

    def forgive(self, keys: Collection[str], identity: Identity | None) -> None:
        """What happened to these counts no more; `save` lets the disk know."""
        for key in keys:
            self._suspects = self._suspects.clear(self._suspect(key, identity).cause)
            self.excuse(key, identity)

    def excuse(self, key: str, identity: Identity | None) -> None:
        """The warming of a prefix came to its end for a reason of its own, whatever dies after it."""
        cause = self._suspect(key, identity).cause
        kept = [(at, suspect) for at, suspect in self._broken_off if suspect.cause != cause]
        self._broken_off = deque(kept, maxlen=KEPT)

    async def save(self) -> None:
        """Return once the disk has what is known now, or has been given its time; never raises for it."""
        if self._folder is None or (self._written == self._suspects and not self._is_writing):
            return
        self._is_writing = True
        try:
            await self._disk.run(self._write, self._folder)
        except TimeoutError:
            self._complain(f"no answer within {self._disk.seconds:g} s")
        except OSError as error:
            self._complain(error.strerror or str(error))

    def _write(self, folder: Path) -> None:
        # What changes meanwhile is written as well: nobody may be waiting for this any more.
        try:
            while self._written != (suspects := self._suspects):
                self._replace(folder / FILE_NAME, suspects)
                self._written = suspects
        finally:
            self._is_writing = False

    def _replace(self, path: Path, suspects: Suspects) -> None:
        try:
            write_json(path, suspects_json(suspects))
        except OSError:
            if self._written.has_no_marks_beyond(suspects):
                raise
            # A mark that stays counts as an abrupt end. On a full disk its own room is enough for the rest.
            path.unlink(missing_ok=True)
            self._written = Suspects()
            write_json(path, suspects_json(suspects))

    def _complain(self, reason: str) -> None:
        if reason != self._complaint:
            self._complaint = reason
            self._emit(make_event("state.failed", reason=f"{self._folder}: {reason}"))
