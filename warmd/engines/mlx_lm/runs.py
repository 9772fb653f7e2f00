"""Puts state from several files together. On the engine's thread only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from warmd.disk.cover import Use
from warmd.engines.mlx_lm import layers
from warmd.engines.mlx_lm.kvtree import Run
from warmd.engines.mlx_lm.packing import Form, State
from warmd.engines.mlx_lm.state import Snapshot


def runs_of(
    states: Sequence[tuple[Use, State]], form: Form, done: int
) -> tuple[list[Run], dict[int, Snapshot]]:
    """Rows one after the other from `done` on, as far as they go without a gap, and snapshots by position.

    The first run may begin before `done`.
    """
    snapshots = {use.end: s.snapshot for use, s in states if s.snapshot is not None and use.has_snapshot}
    if not form.has_rows:
        return [(done, max(snapshots, default=done), [None] * len(form.kinds))], snapshots
    runs: list[Run] = []
    for use, state in sorted(states, key=lambda item: item[1].start):
        if state.start <= done < use.end:
            begin = runs[-1][1] if runs else state.start
            rows = _cut(state.rows, begin - state.start, use.end - state.start)
            runs.append((begin, use.end, rows))
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


def _cut(rows: Sequence[Any], start: int, end: int) -> list[Any]:
    return [own and layers.rows_between(own, start, end) for own in rows]
