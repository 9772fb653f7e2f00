"""What was read from disk on its way into the store. Until all of it is there no request can find it.

On the engine's thread only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warmd.disk.cover import Use
from warmd.engines.mlx_lm import layers
from warmd.engines.mlx_lm.guard import Guard
from warmd.engines.mlx_lm.layers import Kind
from warmd.engines.mlx_lm.packing import Form, State
from warmd.engines.mlx_lm.prefill import empty_cache
from warmd.engines.mlx_lm.recheck import POSITIONS, recheck
from warmd.engines.mlx_lm.runs import join, largest_part
from warmd.engines.mlx_lm.state import Layout, Run, Snapshot
from warmd.engines.mlx_lm.store import WarmStore
from warmd.radix import Tokens


class WrongStateError(Exception):
    """What was loaded is not what the model computes."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to load, as far as the engine's thread knows.

    Attributes:
        form: How the state is kept.
        tokens: The path; less than the prefix where its end is kept in another form.
        done: Tokens of it that are held already.
        least: With fewer tokens nothing can be begun.
    """

    form: Form
    tokens: Tokens
    done: int
    least: int = 1


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


def _cut(rows: Sequence[Any], start: int, end: int) -> list[Any]:
    return [own and layers.rows_between(own, start, end) for own in rows]


def take_in(
    request: Request,
    runs: Sequence[Run],
    snapshots: Mapping[int, Snapshot],
    store: WarmStore,
    provider: Any,
    guard: Guard | None,
    *,
    is_checked: bool,
) -> Iterator[int | None]:
    """Join what was read, compute a sample, and put all into the store: in steps that take no long time each.

    Args:
        request: What was asked for.
        runs: Rows one after the other, from what is held on; they are emptied.
        snapshots: By position.
        store: Where it goes.
        provider: mlx-lm's `ModelProvider`.
        guard: Asked for room; None where memory is no concern.
        is_checked: A sample is computed.

    Yields:
        None after each step, then how many tokens are there: 0 where what they were to go on from has been
        dropped meanwhile.

    Raises:
        WrongStateError: The sample differs; nothing is in the store.
    """
    tokens = request.tokens[: runs[-1][1]]
    if len(runs) > 1 and (guard is None or guard.has_room(largest_part(runs))):
        for joined in join(runs, layers.positions(snapshots, runs[0][0], len(tokens))):
            runs = joined or runs
            yield None
    if is_checked and _has_room(guard, len(tokens)):
        for is_right in _recheck(request, runs, tokens, store, provider):
            if is_right is False:
                raise WrongStateError
            yield None
    yield _put(request.form, runs, snapshots, tokens, store, provider)


def _has_room(guard: Guard | None, tokens: int) -> bool:
    """True when a sample on top of so many tokens fits: it takes as much room as a request."""
    if guard is None:
        return True
    return guard.has_room(guard.cost.peak(tokens) if guard.cost is not None else 0)


def _recheck(
    request: Request, runs: Sequence[Run], tokens: Tokens, store: WarmStore, provider: Any
) -> Iterator[bool | None]:
    form, first, base = request.form, runs[0][0], None
    if form.is_quantised and len(tokens) - POSITIONS < request.least:
        # The model never goes on from quantised state that short.
        return
    if first and form.is_cuttable:
        tree = store.tree(is_quantised=form.is_quantised)
        match = tree.match(tokens, first) if tree is not None else None
        if tree is None or match is None or match.length < first:
            return
        base = tree.copy(match, 0)
    yield from recheck(provider, form, runs, tokens, base)


def _put(
    form: Form,
    runs: Sequence[Run],
    snapshots: Mapping[int, Snapshot],
    tokens: Tokens,
    store: WarmStore,
    provider: Any,
) -> int:
    tree = store.tree(is_quantised=form.is_quantised)
    depth = tree.depth(tokens) if tree is not None else 0
    if (tree is not None and tree.layout.kinds != form.kinds) or runs[0][0] > depth:
        return 0
    store.take_in(tokens, _layout_of(form, provider), runs, snapshots)
    return len(tokens)


def _layout_of(form: Form, provider: Any) -> Layout:
    """As the state of a form is laid out."""
    likes = (
        None if kind is Kind.SNAPSHOT else like for kind, like in zip(form.kinds, form.likes, strict=True)
    )
    return Layout(form.kinds, layers.regroup(empty_cache(provider), likes))
