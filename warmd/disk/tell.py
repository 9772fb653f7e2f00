"""Turns what happens to files into events."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from warmd.disk.record import Record
from warmd.events import Emit, make_event


class Tell:
    """Builds events, from whatever thread. What goes on being wrong is told once.

    Args:
        emit: Receives them; it must be safe to call from any thread.
    """

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._lock = threading.Lock()
        self._told: set[tuple[str, ...]] = set()
        self.problem: str | None = None
        """Why nothing is written or read now, or None."""

    def written(self, record: Record, seconds: float) -> None:
        """A file was written: what was wrong is so no longer."""
        self.recovered()
        self._emit(
            make_event(
                "store.written",
                tokens=record.end,
                new_tokens=len(record.own),
                bytes=record.nbytes,
                ms=round(1000 * seconds),
            )
        )

    def recovered(self) -> None:
        """All that is to be written is: should it go wrong again, that is news."""
        with self._lock:
            self._told = {told for told in self._told if told[0] != "write"}
            self.problem = None

    def failed(self, operation: str, reason: str) -> None:
        """The disk does not do what it should; all goes on from memory."""
        self.problem = reason
        if self._is_news(operation, reason):
            self._emit(make_event("store.failed", operation=operation, reason=reason))

    def rejected(self, file: str, tokens: int | None, reason: str) -> None:
        """A file is not used."""
        if self._is_news("reject", file, reason):
            self._emit(make_event("store.rejected", file=file, tokens=tokens, reason=reason))

    def differs(self, record: Record, fields: Sequence[str]) -> None:
        """State of just these tokens is there, for something else; told once for each way to differ."""
        reason = f"it is of other {', '.join(fields)}"
        if self._is_news("differs", record.identity_digest, reason):
            event = make_event(
                "store.rejected", level="info", file=record.name, tokens=record.end, reason=reason
            )
            self._emit(event)

    def slow(self, tokens: int, seconds: float, prefill_seconds: float) -> None:
        """Reading takes longer than prefilling: the rest is prefilled."""
        self._emit(
            make_event(
                "store.slow",
                tokens=tokens,
                disk_ms=round(1000 * seconds),
                prefill_ms=round(1000 * prefill_seconds),
            )
        )

    def pruned(self, records: Sequence[Record], reason: str) -> None:
        """Files were removed."""
        size = sum(record.nbytes for record in records)
        self._emit(make_event("store.pruned", files=len(records), bytes=size, reason=reason))

    def _is_news(self, *what: str) -> bool:
        with self._lock:
            is_news = what not in self._told
            self._told.add(what)
            return is_news
