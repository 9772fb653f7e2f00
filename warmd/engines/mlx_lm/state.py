"""How a model's caches are kept, and what is kept of a run of tokens. On the engine's thread only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from warmd.engines.mlx_lm import layers
from warmd.engines.mlx_lm.layers import Kind, Rows
from warmd.radix import Tokens

Snapshot = list[Any]
"""Copies of the parts of kind SNAPSHOT at one position, None for every other part."""

Run = tuple[int, int, list[Rows | None]]
"""Rows of a run of tokens: its start and end on the path, and those of each part."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How the parts of a model's caches are kept.

    Attributes:
        kinds: For each part.
        skeleton: A prompt cache of parts that hold nothing, to make others from.
    """

    kinds: tuple[Kind, ...]
    skeleton: list[Any]

    @staticmethod
    def of(cache: Sequence[Any], tokens: int) -> Layout:
        """The layout of a cache that has seen so many tokens (at least one)."""
        parts = list(layers.parts(cache))
        kinds = tuple(layers.kind_of(part, tokens) for part in parts)
        empty = (
            layers.template_of(part) if kind is Kind.ROWS else part if kind is Kind.EMPTY else None
            for part, kind in zip(parts, kinds, strict=True)
        )
        return Layout(kinds, layers.regroup(cache, empty))

    @property
    def is_cuttable(self) -> bool:
        """True when any beginning of the state is the state of that beginning."""
        return Kind.SNAPSHOT not in self.kinds

    def snapshot(self, cache: Sequence[Any]) -> Snapshot | None:
        """What has to be kept at a position besides rows, computed; None where that is nothing."""
        if self.is_cuttable:
            return None
        parts = zip(layers.parts(cache), self.kinds, strict=True)
        copies = [layers.snapshot(part) if kind is Kind.SNAPSHOT else None for part, kind in parts]
        mx.eval(layers.arrays_of(copies))
        return copies


class Span:
    """The state of a node's own tokens.

    Attributes:
        rows: For each part of kind ROWS those of the node's tokens, else None.
        snapshot: The other parts at the node's end, or None where none is kept: nothing can go on from there.
        rows_bytes: Bytes of `rows`.
        snapshot_bytes: Bytes of `snapshot`.
        held: Key of the held prefix that ends with the node, or None.
    """

    __slots__ = ("held", "rows", "rows_bytes", "snapshot", "snapshot_bytes")

    def __init__(self, rows: list[Rows | None], snapshot: Snapshot | None, held: str | None = None) -> None:
        self.held = held
        self.rows = rows
        self.rows_bytes = layers.nbytes(rows)
        self.set_snapshot(snapshot)

    def set_snapshot(self, snapshot: Snapshot | None) -> None:
        """Keep another one, or (None) none."""
        self.snapshot = snapshot
        self.snapshot_bytes = layers.nbytes(snapshot)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.rows_bytes + self.snapshot_bytes

    def rows_of(self, part: int) -> Rows:
        """Those of a part of kind ROWS."""
        rows = self.rows[part]
        if rows is None:
            raise ValueError("a node lacks the rows of a part")
        return rows

    def split(self, at: int) -> tuple[Span, Span]:
        """The states of its first tokens, of which no snapshot is known, and of the others; it is used up.

        Part by part, so that hardly more than one of them is there twice.
        """
        upper: list[Rows | None] = []
        for index, rows in enumerate(self.rows):
            halves = layers.split_rows(rows, at) if rows is not None else (None, None)
            mx.eval(layers.arrays_of(halves))
            upper.append(halves[0])
            self.rows[index] = halves[1]
        return Span(upper, None), Span(self.rows, self.snapshot, self.held)

    @staticmethod
    def join(spans: Sequence[Span]) -> Span:
        """The state of all their tokens, one after the other; likewise."""
        *upper, last = spans
        for index, rows in enumerate(last.rows):
            if rows is not None:
                last.rows[index] = layers.join_rows([span.rows_of(index) for span in spans])
                mx.eval(layers.arrays_of(last.rows[index]))
                for span in upper:
                    span.rows[index] = None
        return Span(last.rows, last.snapshot, last.held)


@dataclass(frozen=True, slots=True)
class Outline:
    """Where prefills can go on from in a tree, for other threads: nodes without state.

    Attributes:
        is_cuttable: Anywhere, and not only where there is a snapshot.
        floor: The least length that can be gone on from.
        nodes: Each with its parent's place (0 is the root, 1 the first of these), its own tokens, and whether
            a snapshot is at its end.
    """

    is_cuttable: bool
    floor: int
    nodes: Sequence[tuple[int, Tokens, bool]] = ()
