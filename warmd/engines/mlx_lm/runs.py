"""Rows of several runs of tokens put together. On the engine's thread only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx

from warmd.engines.mlx_lm import layers
from warmd.engines.mlx_lm.layers import Rows
from warmd.engines.mlx_lm.state import Run


def rows_of(runs: Sequence[Run], start: int, end: int, index: int) -> Rows | None:
    """One part's rows from one position to another (lazy)."""
    pieces = [
        layers.rows_between(own, max(first, start) - first, min(last, end) - first)
        for first, last, rows in runs
        if first < end and start < last and (own := rows[index]) is not None
    ]
    return layers.join_rows(pieces) if len(pieces) > 1 else next(iter(pieces), None)


def largest_part(runs: Sequence[Run]) -> int:
    """Bytes of the largest part: what joining takes besides the rows themselves."""
    parts = zip(*(rows for *_, rows in runs), strict=True)
    return max(layers.nbytes(list(part)) for part in parts)


def join(runs: Sequence[Run], spans: Sequence[tuple[int, int]]) -> Iterator[list[Run] | None]:
    """Make one run of each span, a part a step: yields None after each, then the runs.

    Those that there were are emptied on the way: hardly more than one part is held twice. All are joined at
    once, as one after the other the first ones would be copied again and again.
    """
    joined: list[Run] = [(start, end, []) for start, end in spans]
    for index in range(len(runs[0][2])):
        for start, end, rows in joined:
            rows.append(rows_of(runs, start, end, index))
        mx.eval(layers.arrays_of([rows[index] for *_, rows in joined]))
        for *_, rows in runs:
            rows[index] = None
        # The buffers of the pieces are of no size that is asked for again.
        mx.clear_cache()
        yield None
    yield joined
