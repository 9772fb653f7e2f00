"""What tests of warm state share: prefixes, prefilling them, and comparing answers."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache

from warmd.engines.base import Prefix, Warmed
from warmd.engines.mlx_lm.prefill import Prefill
from warmd.engines.mlx_lm.store import WarmStore

TOLERANCE = 1e-3
"""Relative to the largest logit. Rounding stays far below it, state that is wrong in one place far above."""


def ids(count: int, seed: int = 1) -> list[int]:
    """`count` token ids that look like nothing in particular; other seeds give others at every position."""
    return [(seed * 7919 + index * 104729) % 250 + 20 for index in range(count)]


def make_provider(model: Any, draft: Any = None, **args: Any) -> Any:
    """What a prefill needs of mlx-lm's model provider."""
    cli_args = Namespace(
        **{
            "prefill_step_size": 2048,
            "kv_bits": None,
            "kv_group_size": 32,
            "quantized_kv_start": 0,
            **args,
        }
    )
    return SimpleNamespace(model=model, draft_model=draft, cli_args=cli_args)


def warm(
    store: WarmStore, provider: Any, tokens: Sequence[int], chunk: int = 7, ends: list[int] | None = None
) -> Warmed:
    """Prefill a prefix into the store. The positions at which its chunks end are added to `ends`."""
    on_progress = (lambda done: None) if ends is None else ends.append
    prefill = Prefill(Prefix(tuple(tokens)), store, provider, chunk, on_progress)
    while (warmed := prefill.step()) is None:
        pass
    return warmed


def answer(model: Any, tokens: list[int], cache: list[Any]) -> mx.array:
    """The logits after `tokens`, which are left to compute on top of `cache`."""
    logits: mx.array = model(mx.array(tokens)[None], cache=cache)[0, -1]
    mx.eval(logits)
    return logits


def generated(
    model: Any, tokens: list[int], cache: list[Any], bits: int | None, step: int, start: int = 0
) -> list[mx.array]:
    """The log-probabilities of four answer tokens, by mlx-lm's own generation with a quantised cache."""
    steps = generate_step(
        mx.array(tokens),
        model,
        stream=mx.default_stream(mx.default_device()),
        max_tokens=4,
        prompt_cache=cache,
        prefill_step_size=step,
        kv_bits=bits,
        kv_group_size=32,
        quantized_kv_start=start,
    )
    return [logprobs for _, logprobs in steps]


def prefilled(
    model: Any, tokens: list[int], ends: Iterable[int] = (), cache: list[Any] | None = None, start: int = 0
) -> list[Any]:
    """The cache of a cold prefill of chunks that end at `ends`, and at the end.

    With a `cache` that has seen `start` tokens it goes on from there.
    """
    cache = make_prompt_cache(model) if cache is None else cache
    for end in (*ends, len(tokens)):
        if end > start:
            model(mx.array(tokens[start:end])[None], cache=cache)
            mx.eval([layer.state for layer in cache])
            start = end
    return cache


def difference(expected: mx.array, found: mx.array) -> float:
    """The largest difference of two sets of logits, relative to the largest logit."""
    return float(mx.abs(expected - found).max() / mx.abs(expected).max())


def assert_same_answer(expected: mx.array, found: mx.array) -> None:
    """The same next token, and logits that differ by rounding only."""
    assert int(mx.argmax(expected)) == int(mx.argmax(found))
    assert difference(expected, found) < TOLERANCE
