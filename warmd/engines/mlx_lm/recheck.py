"""A sample of loaded state computed anew: what a checksum cannot see. On the engine's thread only.

The last positions of what was loaded are computed on top of the rest of it. In every layer but the first what
comes out depends on all rows below, so that state of another model, or of other tokens, shows. Where state
cannot be cut, only the first positions can be computed for little; they say whether the model is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx

from warmd.engines.mlx_lm import layers
from warmd.engines.mlx_lm.layers import Kind, Rows
from warmd.engines.mlx_lm.packing import Form
from warmd.engines.mlx_lm.prefill import compute, empty_cache
from warmd.engines.mlx_lm.runs import rows_of
from warmd.engines.mlx_lm.state import Run
from warmd.radix import Tokens

POSITIONS = 4
_TOLERANCES = {mx.float32: 0.02}
_TOLERANCE, _QUANTISED_TOLERANCE = 0.15, 0.3
"""Of the difference's norm, relative to the state's. Rounding and other chunks stay far below these, and
state that belongs to something else comes to about 1.4."""


def recheck(
    provider: Any, form: Form, runs: Sequence[Run], tokens: Tokens, base: list[Any] | None
) -> Iterator[bool | None]:
    """Compute a sample, one position a step, after the state was put together, one part a step.

    A request that comes waits for no more than that.

    Args:
        provider: mlx-lm's `ModelProvider`.
        form: How the state is kept.
        runs: What was loaded; only looked at.
        tokens: The path up to its end.
        base: A cache of what is before it, nobody else's; None where there is nothing.

    Yields:
        None after each step, then whether what the model computes is what was loaded.
    """
    first, end = runs[0][0], len(tokens)
    if form.is_cuttable:
        start = max(first, end - POSITIONS)
        made = []
        for part in _on_top(form, base, runs, start, end - start):
            mx.eval(layers.arrays_of(part))
            made.append(part)
            yield None
        empty = empty_cache(provider)
        cache = layers.regroup(empty, iter(made)) if made else empty
    elif form.has_rows and first == 0:
        start, end, cache = 0, min(end, POSITIONS), empty_cache(provider)
    else:
        yield True
        return
    for token in tokens[start:end]:
        cache = compute(provider, cache, mx.array([[token]]))
        yield None
    held = [rows_of(runs, start, end, index) for index in range(len(form.kinds))]
    yield _is_right(cache, form, held, start, end)


def _is_right(cache: list[Any], form: Form, held: Sequence[Rows | None], start: int, end: int) -> bool:
    """Compare a cache, from one position to another, with rows."""
    for part, own, like in zip(layers.parts(cache), held, form.likes, strict=True):
        if own is None:
            continue
        expected = _plain(layers.cut_rows(part, start, end), part)
        for one, other in zip(expected, _plain(own, like), strict=True):
            # Not the other way round: nothing that is compared with NaN is true.
            if not _distance(one, other) <= _tolerance(own):
                return False
    return True


def _on_top(form: Form, base: list[Any] | None, runs: Sequence[Run], end: int, more: int) -> Iterator[Any]:
    """The parts of a base and, behind it, of runs up to a position (lazy), with room for more tokens.

    None where there is nothing.
    """
    if end == 0:
        return
    first = runs[0][0]
    below = list(layers.parts(base)) if base is not None else []

    for index, (kind, like) in enumerate(zip(form.kinds, form.likes, strict=True)):
        if kind is not Kind.ROWS:
            yield layers.hand_out(like)
            continue
        pieces = [layers.first_rows((below[index].keys, below[index].values), first)] if below else []
        own = rows_of(runs, first, end, index)
        yield layers.make_part(like, [*pieces, own] if own is not None else pieces, end, more)


def _plain(rows: Rows, like: Any) -> list[mx.array]:
    """Keys and values as numbers that can be compared."""
    return [
        mx.dequantize(array[0], array[1], array[2], like.group_size, like.bits)
        if isinstance(array, (tuple, list))
        else array
        for array in rows
    ]


def _distance(expected: mx.array, found: mx.array) -> float:
    left, right = expected.astype(mx.float32).reshape(-1), found.astype(mx.float32).reshape(-1)
    gap, size = mx.linalg.norm(left - right), mx.maximum(mx.linalg.norm(left), 1e-6)
    return float((gap / size).item())  # type: ignore[arg-type] # never complex


def _tolerance(rows: Rows) -> float:
    keys = rows[0]
    if isinstance(keys, (tuple, list)):
        return _QUANTISED_TOLERANCE
    return _TOLERANCES.get(keys.dtype, _TOLERANCE)
