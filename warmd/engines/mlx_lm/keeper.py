"""Keeps on disk what the warm store holds, and finds it there again: the engine's side of `warmd.disk`.

What touches an array happens on the engine's thread, a file at a time: `make_piece` and every `Loading`. The
rest is bytes: one thread writes them, and each loading has one that reads.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from warmd.disk.cover import Use, uses_of
from warmd.disk.errors import DamagedError
from warmd.disk.files import Files
from warmd.disk.identity import Weights, differences, digest_of
from warmd.disk.pace import PATIENCE, ReadPace
from warmd.disk.reader import Reader
from warmd.disk.record import Record, shortened
from warmd.disk.shelf import Shelf
from warmd.disk.status import DiskStatus
from warmd.disk.tell import Tell
from warmd.disk.writer import Piece, Wanted, Writer, WriterSettings
from warmd.engines.base import Prefix
from warmd.engines.mlx_lm.choosing import choose, find, requests_for
from warmd.engines.mlx_lm.forms import Known, identity_of
from warmd.engines.mlx_lm.guard import Guard
from warmd.engines.mlx_lm.intake import Request
from warmd.engines.mlx_lm.loading import Choice, Disk, Loading
from warmd.engines.mlx_lm.packing import Form
from warmd.engines.mlx_lm.pieces import PIECE_BYTES, Pieces
from warmd.engines.mlx_lm.store import WarmStore
from warmd.radix import Sharing


class Keeper:
    """The files of one folder, for one engine.

    Args:
        files: The folder.
        settings: Bounds for writing.
        tell: Receives what happens.
        is_checked: A sample of what is loaded is computed anew.
        piece_bytes: See `PIECE_BYTES`.
    """

    def __init__(
        self,
        files: Files,
        settings: WriterSettings,
        tell: Tell,
        *,
        is_checked: bool = True,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self.shelf = Shelf(files)
        self.tell = tell
        self.tokens_per_s: float | None = None
        self._settings = settings
        self._is_checked = is_checked
        self._pieces = Pieces(self.shelf, tell, piece_bytes)
        self._pace = ReadPace()
        self._known: Known | None = None
        self._declared: Collection[Prefix] | None = None
        self._writer: Writer | None = None
        self._want_lock = threading.Lock()
        self._made: Record | None = None
        """Of the last piece, which may not be on disk yet."""

    def start(self, ask: Callable[[], Piece | None]) -> None:
        """Begin to write; `ask` gets a piece from the engine's thread, and waits for it."""
        self._writer = Writer(self.shelf, self._settings, ask, self.tell)
        self._writer.start()

    def status(self) -> DiskStatus:
        """What there is, from any thread."""
        found = self.shelf.statistics()
        return DiskStatus(str(self.shelf.files.folder), found.files, found.nbytes, self.tell.problem)

    def find(self, requests: Sequence[Request]) -> Choice:
        """What there is on disk for requests, as of the last look at it. From any thread."""
        known = self._known
        return find(self.shelf.records if known is not None else (), requests, known.digest if known else "")

    @property
    def forms(self) -> Mapping[bool, Form]:
        """How the loaded model's state is kept; empty while that is not known."""
        return self._known.forms if self._known is not None else {}

    # --- what is loaded and wanted -----------------------------------------------------------------

    def model_loaded(
        self, weights: Mapping[str, Weights], forms: Mapping[bool, Form], args: Any, model: str
    ) -> None:
        """Another model, of such weights; see `identity_of`."""
        identity = identity_of(weights, forms, args)
        self._known = Known(forms, identity, digest_of(identity), model)
        self.tokens_per_s = None
        self._pieces.forget()
        self._want()

    def model_gone(self) -> None:
        """There is none."""
        self._known, self._declared = None, None
        self._want()

    def declare(self, prefixes: Collection[Prefix]) -> None:
        """What is to be held, and so on disk. From any thread."""
        self._declared = tuple(prefixes)
        self._want()

    def wake(self) -> None:
        """Something has become warm. From any thread."""
        if self._writer is not None:
            self._writer.wake()

    def distrust(self, keys: Collection[str]) -> None:
        """Declared prefixes that may be wrong: what is on disk for them alone is not used again. Any thread.

        What another one goes along stays, be it a part of a file, as it stays in the tree and is served from
        there: a proof compares lengths, so one that fails says that something is missing, not that what is
        shared is wrong. The check that does compare numbers rejects all files that it was computed from.
        `remove_doomed` does it at once.
        """
        known, declared = self._known, self._declared or ()
        made = self._made
        # Those of other models, or settings, are as good as before.
        records = [
            record
            for record in (*self.shelf.records, *((made,) if made is not None else ()))
            if known is not None and record.identity_digest == known.digest
        ]
        others = Sharing(prefix.packed for prefix in declared if prefix.key not in keys)
        for prefix in declared:
            if prefix.key in keys:
                shared = others.reach(prefix.packed)
                doubtful = [use.record for use in uses_of(records, prefix.packed) if use.end > shared]
                self._discard(doubtful, shared)

    def remove_doomed(self) -> None:
        """Have removed at once what is not used again. On any thread that may wait for the disk."""
        if self._writer is not None:
            # Or the next process would use it. What the disk refuses now the writer tries again, and tells.
            with contextlib.suppress(OSError):
                self._writer.remove_doomed()

    def _discard(self, records: Sequence[Record], shared: int = 0) -> None:
        """Have files go, but for rows of tokens up to `shared`."""
        self.shelf.forget(records)
        if self._writer is not None:
            self._writer.doom({record.name: self._rest(record, shared) for record in records})

    def _rest(self, record: Record, end: int) -> Record | None:
        form = self.forms.get(record.is_quantised)
        is_left = form is not None and form.has_rows and record.start < end
        return shortened(record, end) if is_left else None

    def _want(self) -> None:
        if self._writer is None:
            return
        # Or what one thread has found out could be undone by one that looked before.
        with self._want_lock:
            known, declared = self._known, self._declared
            wanted = None
            if known is not None and declared is not None:
                wanted = Wanted([prefix.packed for prefix in declared], known.digest)
            self._writer.want(wanted)

    def make_piece(self, store: WarmStore, guard: Guard | None) -> tuple[Piece | None] | None:
        """See `Pieces.make`. On the engine's thread."""
        known = self._known
        if known is None:
            return (None,)
        found = self._pieces.make(known, store, guard, self.tokens_per_s)
        if found is not None and found[0] is not None:
            self._made = found[0].record
        return found

    # --- reading -----------------------------------------------------------------------------------

    def loading(
        self,
        prefix: Prefix,
        store: WarmStore,
        provider: Any,
        on_progress: Callable[[int], None],
        guard: Guard | None,
    ) -> Loading | None:
        """Begin to load a prefix, on the engine's thread; None where there is nothing to be had."""
        known = self._known
        if known is None or not self._pace.is_worth(PATIENCE):
            return None
        requests = requests_for(prefix.packed, known.forms, store.quantised_from, store.depth_of)
        if not requests:
            return None
        disk = Disk(
            lambda requests: self._choose(known, requests),
            lambda plan: Reader(self.shelf, plan),
            self._reject,
            self._unreadable,
            self._pace.is_worth,
            self._slow,
            lambda: self.tokens_per_s,
            self._is_checked,
        )
        return Loading(requests, disk, store, provider, on_progress, guard)

    def _choose(self, known: Known, requests: Sequence[Request]) -> Choice:
        """Which files to read. On the reader's thread."""
        self._report(self.shelf.refresh())
        choice, others = choose(self.shelf.records, requests, known.digest)
        for record in others:
            self.tell.differs(record, differences(known.identity, record.identity))
        return choice

    def _report(self, errors: Sequence[DamagedError]) -> None:
        if self._writer is not None:
            self._writer.report(errors)
            return
        for error in errors:
            self.tell.rejected(error.name, None, error.reason)

    def _reject(self, uses: Sequence[Use], reason: str) -> None:
        for use in uses:
            self.tell.rejected(use.record.name, use.record.end, reason)
        self._discard([use.record for use in uses])

    def _unreadable(self, use: Use, reason: str) -> None:
        # The disk may be well again later, so the file stays where it is.
        self.tell.rejected(use.record.name, use.record.end, reason)
        self.shelf.forget([use.record])

    def _slow(self, tokens: int, seconds: float, allowed: float) -> None:
        # Where it did not even come to light what there is to read, nothing is at stake that is known.
        self._pace.note_slow(seconds if tokens else PATIENCE)
        self.tell.slow(tokens, seconds, allowed)
