"""The one thread that writes: a piece at a time, at a bounded rate, and never while somebody else does.

Whatever the disk does, nobody waits for this thread, and nothing that it meets ends it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from warmd.disk.bounds import expired, most, surplus
from warmd.disk.cover import wanted_names
from warmd.disk.errors import DamagedError, FullError, LockedError, NotNowError
from warmd.disk.record import Record
from warmd.disk.shelf import Shelf
from warmd.disk.tell import Tell
from warmd.radix import Tokens

RETRY = 30.0
"""Seconds after which what failed is tried again."""
LOOK = 3600.0
"""Seconds between two looks at what may go."""
_SOON = 0.1
"""Of the grace period: a wanted file is marked as such again after this part of it."""


def marking_lag(grace: float) -> float:
    """Seconds that a file's last mark may be old although a running daemon wants the file.

    Args:
        grace: See `WriterSettings`.
    """
    return _SOON * grace + LOOK


@dataclass(frozen=True, slots=True)
class Piece:
    """A file that is to be written.

    Attributes:
        record: What the index will say of it.
        content: All of it.
    """

    record: Record
    content: bytes


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """How much, how fast, and for how long.

    Attributes:
        max_bytes: All files together; None: by what is free on the disk.
        grace: Seconds after which a file goes that nobody has wanted since.
        rate: Bytes a second.
    """

    max_bytes: int | None = None
    grace: float = 7 * 24 * 3600.0
    rate: int = 100_000_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is declared now: its paths, and the digest of the identity that its state has to have."""

    paths: Sequence[Tokens]
    identity_digest: str


class Writer:
    """Writes pieces and removes what is not wanted, on a thread of its own.

    Args:
        shelf: The index.
        settings: Bounds.
        next_piece: Makes the next piece that is to be written, None when all is there. It may block, and may
            raise anything: then it is asked again later. Only `NotNowError` goes without being told.
        tell: Receives what happens.
        retry: See `RETRY`.
    """

    def __init__(
        self,
        shelf: Shelf,
        settings: WriterSettings,
        next_piece: Callable[[], Piece | None],
        tell: Tell,
        retry: float = RETRY,
    ) -> None:
        self._shelf = shelf
        self._settings = settings
        self._next_piece = next_piece
        self._tell = tell
        self._retry = retry
        self._wanted: Wanted | None = None
        self._tidied: Wanted | None = None
        self._tidied_at = -LOOK
        self._lock: int | None = None
        self._doomed: dict[str, Record | None] = {}
        """What stays of each file, if anything does."""
        self._doomed_lock = threading.Lock()
        self._news = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="disk-writer", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """End after the piece that is being written; for tests: a process just ends."""
        self._stopped.set()
        self._news.set()
        self._thread.join(timeout)

    def want(self, wanted: Wanted | None) -> None:
        """Say what is declared; None where that is not known. From any thread."""
        self._wanted = wanted
        self._news.set()

    def wake(self) -> None:
        """There may be something to write. From any thread."""
        self._news.set()

    def doom(self, doomed: Mapping[str, Record | None]) -> None:
        """Have files go that turned out to be wrong; see `Shelf.replace`. From any thread."""
        with self._doomed_lock:
            # Of what goes altogether nothing comes back.
            gone = {name: None for name, rest in self._doomed.items() if rest is None}
            self._doomed = {**self._doomed, **doomed, **gone}
        self._news.set()

    def remove_doomed(self) -> None:
        """Do that now, where this is the process that writes. On any thread that may wait for the disk.

        Raises:
            OSError: The system refuses; it is tried again.
        """
        if self._lock is not None:
            # It is done once more on the writer's thread: one of them may be on its way to the disk just now.
            self._shelf.replace(self._doomed)

    def report(self, errors: Iterable[DamagedError]) -> None:
        """Tell of files that cannot be used, and remove those that nobody else can use. From any thread."""
        for error in errors:
            self._tell.rejected(error.name, None, error.reason)
            if error.is_hopeless:
                self.doom({error.name: None})

    # --- on the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        # Plans tell what is to be read, and the first one is made before anything is wanted here.
        with contextlib.suppress(OSError):
            self.report(self._shelf.refresh())
        while not self._stopped.is_set():
            self._news.clear()
            is_done = self._round()
            self._news.wait(LOOK if is_done else self._retry)
            if not is_done and self._news.is_set():
                # Not at once: each entry that gets warm would try a disk that does not work.
                self._stopped.wait(min(1.0, self._retry))
        self._unlock()

    def _round(self) -> bool:
        """Do all that is to be done; False when it is to be tried again."""
        if self._wanted is None:
            return True
        try:
            self._claim()
            self.report(self._shelf.refresh())
            if self._is_untidy():
                self._tidy()
            while not self._stopped.is_set() and (piece := self._next_piece()) is not None:
                self._write(piece)
            self._tell.recovered()
            return True
        except (LockedError, FullError) as error:
            self._tell.failed("write", str(error))
        except OSError as error:
            self._unlock()
            self._tell.failed("write", error.strerror or type(error).__name__)
        except NotNowError:
            pass
        except Exception as error:  # noqa: BLE001 - nothing ends this thread
            # Its message may quote what it was about.
            self._tell.failed("write", type(error).__name__)
        return False

    def _claim(self) -> None:
        files = self._shelf.files
        if self._lock is not None and files.holds(self._lock):
            return
        self._unlock()
        self._lock = files.lock()

    def _unlock(self) -> None:
        if self._lock is not None:
            with contextlib.suppress(OSError):
                os.close(self._lock)
            self._lock = None

    def _write(self, piece: Piece) -> None:
        size, began = piece.record.nbytes, time.monotonic()
        self._make_room(size)
        self._claim()
        self._shelf.files.write(piece.record.name, piece.content)
        if piece.record.name in self._doomed:
            # It was made before that.
            self._settle_doomed()
            return
        self._shelf.add(piece.record)
        taken = time.monotonic() - began
        self._tell.written(piece.record, taken)
        self._stopped.wait(max(0.0, size / self._settings.rate - taken))

    # --- what goes -------------------------------------------------------------------------------

    def _needed(self) -> frozenset[str]:
        wanted = self._wanted
        if wanted is None:
            return frozenset(record.name for record in self._shelf.records)
        return wanted_names(self._shelf.records, wanted.paths, wanted.identity_digest)

    def _is_untidy(self) -> bool:
        """Not each time that an entry gets warm: looking at all of them takes a while."""
        is_due = time.monotonic() > self._tidied_at + LOOK
        return is_due or self._tidied is not self._wanted or bool(self._doomed)

    def _tidy(self) -> None:
        self._tidied, self._tidied_at = self._wanted, time.monotonic()
        now, grace, needed = time.time(), self._settings.grace, self._needed()
        stale = [
            record
            for record in self._shelf.records
            if record.name in needed and not now - _SOON * grace <= record.wanted_at <= now + 1
        ]
        self._shelf.touch(stale, now)
        damaged = {item.name for item in self._shelf.damaged if item.changed_at < now - grace}
        self._shelf.remove(damaged)
        self._settle_doomed()
        self._remove(expired(self._shelf.records, needed, now - grace), "no entry has wanted it for long")
        self._remove(surplus(self._shelf.records, needed, self._max_bytes()), "there is no room for it")

    def _settle_doomed(self) -> None:
        """See `remove_doomed`; nothing is being written now."""
        doomed = self._doomed
        self._shelf.replace(doomed)
        with self._doomed_lock:
            left = {
                name for name in self._doomed if name not in doomed or doomed[name] is not self._doomed[name]
            }
            self._doomed = {name: self._doomed[name] for name in left}

    def _make_room(self, size: int) -> None:
        """Remove what is not wanted until a file fits.

        Raises:
            FullError: That is not enough.
        """
        bound = self._max_bytes()
        if self._shelf.statistics().nbytes + size > bound:
            surplus_files = surplus(self._shelf.records, self._needed(), bound - size)
            self._remove(surplus_files, "there is no room for it")
        if self._shelf.statistics().nbytes + size > bound:
            raise FullError(bound)

    def _remove(self, records: Sequence[Record], reason: str) -> None:
        if records:
            self._shelf.remove(record.name for record in records)
            self._tell.pruned(records, reason)

    def _max_bytes(self) -> int:
        held = self._shelf.statistics().nbytes
        return most(self._settings.max_bytes, self._shelf.files.free(), held)
