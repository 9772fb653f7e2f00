"""Puts state from several files together. On the engine's thread only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import mlx.core as mx

from warmd.disk.cover import Use
from warmd.engines.mlx_lm import layers
from warmd.engines.mlx_lm.layers import Rows
from warmd.engines.mlx_lm.packing import Form, State
from warmd.engines.mlx_lm.state import Run, Snapshot


def runs_of(
    states: Sequence[tuple[Use, State]], form: Form, done: int
) -> tuple[list[Run], dict[int, Snapshot]]:
    """Rows one after the other from `done` on, as far as they go without a gap, and snapshots by position."""
    snapshots = {use.end: s.snapshot for use, s in states if s.snapshot is not None and use.has_snapshot}
    if not form.has_rows:
        return [(done, max(snapshots, default=done), [None] * len(form.kinds))], snapshots
    runs: list[Run] = []
    for use, state in sorted(states, key=lambda item: item[1].start):
        if state.start <= done < use.end:
            runs.append((done, use.end, _cut(state.rows, done - state.start, use.end - state.start)))
            done = use.end
    return runs, snapshots


def reach_of(runs: Sequence[Run], snapshots: Mapping[int, Snapshot], form: Form) -> int:
    """How far a request could go on from: to the last row or, where not all can be cut, the last snapshot."""
    end = runs[-1][1] if runs else 0
    if form.is_cuttable:
        return end
    return max((at for at in snapshots if at <= end), default=0)


def up_to(runs: Sequence[Run], end: int) -> list[Run]:
    """Nothing that is behind a position."""
    return [
        (start, min(last, end), _cut(rows, 0, end - start) if last > end else rows)
        for start, last, rows in runs
        if start < end
    ]


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


def _cut(rows: Sequence[Any], start: int, end: int) -> list[Any]:
    return [own and layers.rows_between(own, start, end) for own in rows]
