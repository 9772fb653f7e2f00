"""Makes the files that are to be written out of what the store holds. On the engine's thread only."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from warmd.disk.cover import Stretch, next_unwritten, uses_of
from warmd.disk.shelf import Shelf
from warmd.disk.tell import Tell
from warmd.disk.writer import Piece
from warmd.engines.mlx_lm import layers
from warmd.engines.mlx_lm.choosing import records_of
from warmd.engines.mlx_lm.forms import Known
from warmd.engines.mlx_lm.guard import Guard
from warmd.engines.mlx_lm.packing import Form, Source, State, UnpackableError, to_piece
from warmd.engines.mlx_lm.state import Span
from warmd.engines.mlx_lm.store import WarmStore
from warmd.radix import Node, Tokens

PIECE_BYTES = 32 << 20
"""Of rows in one file: what a live request may have to wait for while it is copied."""


class Pieces:
    """What there is to write for one model.

    Args:
        shelf: What is on disk.
        tell: Receives what happens.
        piece_bytes: See `PIECE_BYTES`.
    """

    def __init__(self, shelf: Shelf, tell: Tell, piece_bytes: int = PIECE_BYTES) -> None:
        self._shelf = shelf
        self._tell = tell
        self._piece_bytes = piece_bytes
        self._removals = 0
        self.forget()

    def forget(self) -> None:
        """Another model."""
        self._complete: set[str] = set()
        self._is_packable = True

    def make(
        self, known: Known, store: WarmStore, guard: Guard | None, tokens_per_s: float | None
    ) -> tuple[Piece | None] | None:
        """Look for the next file to write, at one prefix a call: a request may wait.

        Args:
            known: The model.
            store: What is held.
            guard: Asked for room; None where memory is no concern.
            tokens_per_s: How fast the model prefills, or None.

        Returns:
            None while there are others to look at; else the file, or (None,) when there is none to write now.

        Raises:
            MemoryError: There is no room for it now.
        """
        if not self._is_packable:
            return (None,)
        if self._removals != self._shelf.removals:
            self._removals = self._shelf.removals
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
        source = Source(known.identity, known.model, tokens_per_s)
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
        uses = uses_of(records_of(self._shelf.records, form, digest), tokens)
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
            self._tell.failed("write", str(error))
            return None
