"""Keeps on disk what the warm store holds, and finds it there again: the engine's side of `warmd.disk`.

What touches an array happens on the engine's thread, a file at a time: `make_piece` and every `Loading`. The
rest is bytes: one thread writes them, and each loading has one that reads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warmd.disk.cover import Stretch, Use, next_unwritten, uses_of
from warmd.disk.errors import DamagedError
from warmd.disk.files import Files
from warmd.disk.identity import Identity, Weights, differences, digest_of
from warmd.disk.pace import PATIENCE, ReadPace
from warmd.disk.reader import Reader
from warmd.disk.record import Record
from warmd.disk.shelf import Shelf
from warmd.disk.status import DiskStatus
from warmd.disk.tell import Tell
from warmd.disk.writer import Piece, Wanted, Writer, WriterSettings
from warmd.engines.base import Prefix
from warmd.engines.mlx_lm import layers
from warmd.engines.mlx_lm.choosing import choose, end_on_disk, records_of, requests_for
from warmd.engines.mlx_lm.forms import identity_of
from warmd.engines.mlx_lm.guard import Guard
from warmd.engines.mlx_lm.intake import Request
from warmd.engines.mlx_lm.loading import Choice, Disk, Loading
from warmd.engines.mlx_lm.packing import Form, Source, State, UnpackableError, to_piece
from warmd.engines.mlx_lm.state import Span
from warmd.engines.mlx_lm.store import WarmStore
from warmd.radix import Node, Sharing, Tokens

PIECE_BYTES = 32 << 20
"""Of rows in one file: what a live request may have to wait for while it is copied."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the loaded model.

    Attributes:
        forms: How its state is kept, by whether it is quantised.
        identity: What its state depends on.
        digest: Names the identity.
        model: For people.
    """

    forms: Mapping[bool, Form]
    identity: Identity
    digest: str
    model: str


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
        self._piece_bytes = piece_bytes
        self._pace = ReadPace()
        self._known: Known | None = None
        self._declared: Collection[Prefix] | None = None
        self._complete: set[str] = set()
        self._removals = 0
        self._is_packable = True
        self._writer: Writer | None = None
        self._want_lock = threading.Lock()

    def start(self, ask: Callable[[], Piece | None]) -> None:
        """Begin to write; `ask` gets a piece from the engine's thread, and waits for it."""
        self._writer = Writer(self.shelf, self._settings, ask, self.tell)
        self._writer.start()

    def status(self) -> DiskStatus:
        """What there is, from any thread."""
        found = self.shelf.statistics()
        return DiskStatus(str(self.shelf.files.folder), found.files, found.nbytes, self.tell.problem)

    def tokens_of(self, wanted: Iterable[tuple[Prefix, int]]) -> int:
        """See `Engine.on_disk`. From any thread."""
        known, records = self._known, self.shelf.records
        if known is None or not records:
            return 0
        fitting = [record for record in records if record.identity_digest == known.digest]
        return sum(
            max(end_on_disk(fitting, form, prefix.packed, done) for form in known.forms.values()) - done
            for prefix, done in wanted
        )

    # --- what is loaded and wanted -----------------------------------------------------------------

    def model_loaded(
        self, weights: Mapping[str, Weights], forms: Mapping[bool, Form], args: Any, model: str
    ) -> None:
        """Another model, of such weights; see `identity_of`."""
        identity = identity_of(weights, forms, args)
        self._known = Known(forms, identity, digest_of(identity), model)
        self.tokens_per_s = None
        self._complete = set()
        self._is_packable = True
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

        What another one goes along stays, as it stays in the tree and is served from there: a proof compares
        lengths, so one that fails says that something is missing, not that what is shared is wrong. The check
        that does compare numbers rejects all files that it was computed from.
        """
        declared = self._declared or ()
        others = Sharing(prefix.packed for prefix in declared if prefix.key not in keys)
        for prefix in declared:
            if prefix.key in keys:
                shared = others.reach(prefix.packed)
                uses = uses_of(self.shelf.records, prefix.packed)
                self._discard([use.record for use in uses if use.end > shared])

    def _discard(self, records: Sequence[Record]) -> None:
        self.shelf.forget(records)
        if self._writer is not None:
            self._writer.doom([record.name for record in records])

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

    # --- writing, on the engine's thread -----------------------------------------------------------

    def make_piece(self, store: WarmStore, guard: Guard | None) -> tuple[Piece | None] | None:
        """Look for the next file to write, at one prefix a call: a request may wait.

        Returns:
            None while there are others to look at; else the file, or (None,) when there is none to write now.

        Raises:
            MemoryError: There is no room for it now.
        """
        known = self._known
        if known is None or not self._is_packable:
            return (None,)
        if self._removals != self.shelf.removals:
            self._removals = self.shelf.removals
            self._complete = set()
        ends = store.held_ends()
        self._complete.intersection_update(key for _, key, _ in ends)
        left = [end for end in ends if end[1] not in self._complete and end[0] in known.forms]
        if not left:
            return (None,)
        is_quantised, key, node = left[0]
        form, path, tokens = known.forms[is_quantised], node.path(), node.path_tokens()
        stretch = self._unwritten(tokens, path, store.branch_points(tokens), form, known.digest)
        if stretch is None:
            self._complete.add(key)
            return None
        source = Source(known.identity, known.model, self.tokens_per_s)
        return (self._piece(tokens, path, form, stretch, source, guard),)

    def _unwritten(
        self, tokens: Tokens, path: Sequence[Node[Span]], points: Collection[int], form: Form, digest: str
    ) -> Stretch | None:
        # What others share lies in no file with what one prefix alone needs: that may have to go.
        stretches = [
            Stretch(start, end, end == node.end and node.payload.snapshot is not None)
            for node in path
            for start, end in layers.positions(points, node.start, node.end)
        ]
        per_token = max((node.payload.rows_bytes / len(node.tokens) for node in path), default=0.0)
        piece_tokens = max(1, int(self._piece_bytes / max(per_token, 1.0)))
        uses = uses_of(records_of(self.shelf.records, form, digest), tokens)
        return next_unwritten(uses, stretches, piece_tokens, has_rows=form.has_rows)

    def _piece(
        self,
        tokens: Tokens,
        path: Sequence[Node[Span]],
        form: Form,
        stretch: Stretch,
        source: Source,
        guard: Guard | None,
    ) -> Piece | None:
        node = next(node for node in path if stretch.end <= node.end)
        rows = [
            part and layers.rows_between(part, stretch.start - node.start, stretch.end - node.start)
            for part in node.payload.rows
        ]
        snapshot = node.payload.snapshot if stretch.has_snapshot else None
        state = State(stretch.start, rows, snapshot)
        # Once as arrays, once as the file, once while that grows.
        if guard is not None and not guard.has_room(3 * (layers.nbytes(rows) + layers.nbytes(snapshot))):
            raise MemoryError
        try:
            return to_piece(tokens[: stretch.end], state, form, source, time.time())
        except UnpackableError as error:
            self._is_packable = False
            self.tell.failed("write", str(error))
            return None

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
        requests = requests_for(prefix, store, known.forms)
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
