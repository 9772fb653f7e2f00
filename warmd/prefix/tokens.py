"""Sequences of token ids."""

from __future__ import annotations

from collections.abc import Mapping

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
