"""Sequences of token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from warmd.errors import RenderError


def token_ids(output: object) -> list[int]:
    """Token ids out of what a tokenizer returned.

    Accepts a sequence of ids, a mapping with ``input_ids`` (transformers' BatchEncoding), and a batch of one
    of either.

    Raises:
        RenderError: It is anything else.
    """
    ids = output["input_ids"] if isinstance(output, Mapping) and "input_ids" in output else output
    if isinstance(ids, list | tuple) and len(ids) == 1 and isinstance(ids[0], list | tuple):
        ids = ids[0]
    if not isinstance(ids, list | tuple):
        raise RenderError(f"the engine's tokenizer returned {type(ids).__name__} instead of token ids")
    # The types as a set, because `True` is an int and an array's scalar only looks like one.
    if set(map(type, ids)) - {int} or min(ids, default=0) < 0:
        raise RenderError("the engine's tokenizer returned something that is not a list of token ids")
    return list(ids)


def common_length(left: Sequence[object], right: Sequence[object]) -> int:
    """Length of the longest common beginning of two sequences of the same type."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    # Comparing slices runs at C speed; a loop over 20,000 tokens does not.
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low
