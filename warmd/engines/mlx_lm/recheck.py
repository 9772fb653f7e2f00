"""A sample of loaded state computed anew: what a checksum cannot see. On the engine's thread only.

The last positions of what was loaded are computed on top of the rest of it. In every layer but the first what
comes out depends on all rows below, so that state of another model, or of other tokens, shows. Where state
cannot be cut, only the first positions can be computed for little; they say whether the model is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map

from warmd.engines.mlx_lm import layers
from warmd.engines.mlx_lm.kvtree import KVTree
from warmd.engines.mlx_lm.layers import Rows
from warmd.engines.mlx_lm.packing import Form
from warmd.engines.mlx_lm.prefill import compute, empty_cache
from warmd.engines.mlx_lm.state import Span
from warmd.radix import Node, Tokens

POSITIONS = 4
_TOLERANCES = {mx.float32: 0.02}
_TOLERANCE, _QUANTISED_TOLERANCE = 0.15, 0.3
"""Of the difference's norm, relative to the state's. Rounding and other chunks stay far below these, and
state that belongs to something else comes to about 1.4."""


def end_differs(provider: Any, form: Form, tree: KVTree, node: Node[Span], tokens: Tokens) -> bool:
    """True when state that can be cut, and ends with a node, is not what the model computes.

    Args:
        provider: mlx-lm's `ModelProvider`.
        form: How the state is kept.
        tree: Has it.
        node: Where it ends.
        tokens: The path to there.
    """
    end = node.end
    start = max(node.start, end - POSITIONS)
    below = tree.match(tokens, start) if start else None
    if start and (below is None or below.length != start):
        # Quantised state that short is not handed out.
        return False
    cache = tree.copy(below, end - start) if below is not None else empty_cache(provider)
    cache = compute(provider, cache, _ids(tokens[start:end]))
    return _differs(cache, form, node.payload.rows, node.start, start, end)


def beginning_differs(provider: Any, form: Form, rows: Sequence[Rows | None], tokens: Tokens) -> bool:
    """True when the first rows are not what the model computes, where not all of the state can be cut.

    Args:
        provider: mlx-lm's `ModelProvider`.
        form: How the state is kept.
        rows: Of each part, from the first token on.
        tokens: Those of the rows.
    """
    end = min(len(tokens), POSITIONS)
    cache = compute(provider, empty_cache(provider), _ids(tokens[:end]))
    return _differs(cache, form, rows, 0, 0, end)


def _differs(
    cache: list[Any], form: Form, rows: Sequence[Rows | None], rows_start: int, start: int, end: int
) -> bool:
    """Compare a cache with rows that begin at `rows_start`, from one position to another."""
    for part, own, like in zip(layers.parts(cache), rows, form.likes, strict=True):
        if own is None:
            continue
        held = tree_map(lambda array: array[..., start - rows_start : end - rows_start, :], own)
        expected = _plain(layers.cut_rows(part, start, end), part)
        for one, other in zip(expected, _plain(held, like), strict=True):
            # Not the other way round: nothing that is compared with NaN is true.
            if not _distance(one, other) <= _tolerance(held):
                return True
    return False


def _ids(tokens: Sequence[int]) -> mx.array:
    return mx.array(list(tokens))[None]


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
