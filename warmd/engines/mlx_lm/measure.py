"""Measures what a model's state costs, by tracing: mlx knows every shape before anything is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx
from mlx_lm.generate import maybe_quantize_kv_cache
from mlx_lm.models.cache import RotatingKVCache, make_prompt_cache

from warmd.engines.mlx_lm import layers
from warmd.engines.mlx_lm.layers import Kind
from warmd.engines.mlx_lm.store import Quantising
from warmd.errors import UsageError
from warmd.memory.cost import Cost, Window

_SHORT, _LONG = 8, 24
"""Two lengths that are traced: what does not differ does not grow."""

Trace = Callable[[int], list[Any]]
"""Makes a prompt cache after so many tokens, not computed."""


class QuantisingError(UsageError):
    """mlx does not quantise as it is told to."""

    def __init__(self, flags: str, error: Exception) -> None:
        super().__init__(f"{flags}: {' '.join(str(error).removeprefix('[quantize]').split())}")


class UnkeepableError(Exception):
    """Nothing can be kept warm for a model; `str` of it says why, in one line."""


class UncopyableError(UnkeepableError):
    """A cache class cannot be copied, and so not be handed to a request."""

    def __init__(self, part: Any, error: Exception) -> None:
        super().__init__(
            f"its state cannot be kept warm: {type(part).__module__}.{type(part).__name__} cannot be copied "
            f"({type(error).__name__})"
        )


class UnquantisableError(UnkeepableError):
    """The flags are right, but do not go with the model: not even requests can be served then."""

    def __init__(self, error: Exception) -> None:
        super().__init__(
            "its state cannot be quantised as --kv-bits and --kv-group-size say: "
            + " ".join(str(error).removeprefix("[quantize]").split())
        )


class UnevenError(UnkeepableError):
    """mlx-lm tells a model's caches from its draft model's by the number of layers, which is wrong here."""

    def __init__(self, caches: int, count: int) -> None:
        super().__init__(
            f"its state cannot be kept warm with a draft model: it has {caches} caches for {count} layers"
        )


def trace(model: Any, draft_model: Any = None) -> Trace:
    """How a model (and its draft model) fill their caches.

    Raises:
        UnevenError: The two models' caches cannot be told apart.
    """
    models = [model] if draft_model is None else [model, draft_model]
    caches = len(make_prompt_cache(model))
    if draft_model is not None and caches != len(model.layers):
        raise UnevenError(caches, len(model.layers))

    def run(tokens: int) -> list[Any]:
        cache: list[Any] = []
        for model in models:
            own = make_prompt_cache(model)
            model(mx.zeros((1, tokens), mx.int32), cache=own)
            cache += own
        return cache

    return run


def quantising(args: Any) -> Quantising | None:
    """When mlx-lm's server quantises, by its flags; None where it never does."""
    if args.kv_bits is None:
        return None
    return Quantising(int(args.prefill_step_size), int(args.quantized_kv_start))


def check_quantising(args: Any) -> None:
    """Check the server's flags `--kv-bits` and `--kv-group-size`: mlx-lm itself fails with the first request.

    Raises:
        QuantisingError: Nothing can be quantised like this.
    """
    if args.kv_bits is None:
        return
    bits, size = args.kv_bits, args.kv_group_size
    try:
        mx.quantize(mx.zeros((1, max(1, size))), group_size=size, bits=bits)
    except ValueError as error:
        raise QuantisingError(f"--kv-bits {bits} --kv-group-size {size}", error) from None


def measure(run: Trace, chunk_tokens: int, args: Any) -> Cost:
    """What state costs.

    Args:
        run: See `trace`.
        chunk_tokens: A window may hold so many tokens more than it needs.
        args: The server's flags.

    Raises:
        UnkeepableError: Some part of the state cannot be copied, or not be quantised.
        Exception: Whatever a model raises that cannot be run.
    """
    short, long = run(_SHORT), run(_LONG)
    cost = cost_of(short, long, chunk_tokens)
    when = quantising(args)
    if when is None:
        return cost
    try:
        maybe_quantize_kv_cache(long, 0, args.kv_group_size, args.kv_bits)
    except ValueError as error:
        raise UnquantisableError(error) from None
    rows = sum(layers.nbytes(layers.cut_rows(part, 0, 1)) for part in layers.parts(long) if _is_rows(part))
    return replace(cost, quantised_from=when.first, quantised_row_bytes=rows)


def cost_of(short: Sequence[Any], long: Sequence[Any], chunk_tokens: int) -> Cost:
    """The cost by what two caches hold after `_SHORT` and `_LONG` tokens."""
    row_bytes, constant, sizes = 0, 0, [0]
    windows: list[Window] = []
    for before, part in zip(layers.parts(short), layers.parts(long), strict=True):
        if _is_rows(part):
            sizes.append(layers.nbytes(layers.cut_rows(part, 0, 1)))
            row_bytes += sizes[-1]
            continue
        first, second = _snapshot_bytes(before), _snapshot_bytes(part)
        if type(part) is RotatingKVCache and part.keep == 0:
            # Snapshots of it hold the window and no more.
            sizes.append(layers.nbytes(layers.cut_rows(before, 0, 1)))
            windows.append(Window(sizes[-1], part.max_size))
            continue
        growth = max(0, -(-(second - first) // (_LONG - _SHORT)))
        constant += max(0, second - growth * _LONG)
        sizes.append(growth)
        if growth:
            windows.append(Window(growth, _saturation(part, chunk_tokens)))
    return Cost(row_bytes, tuple(windows), constant, max(sizes) / sum(sizes) if any(sizes) else 1.0)


def _is_rows(part: Any) -> bool:
    return layers.kind_of(part, _LONG) is Kind.ROWS


def _snapshot_bytes(part: Any) -> int:
    try:
        return layers.nbytes(layers.snapshot(part))
    except Exception as error:  # noqa: BLE001 - whatever it raises, it cannot be copied
        raise UncopyableError(part, error) from None


def _saturation(part: Any, chunk_tokens: int) -> int | None:
    """Where a part stops growing, by what it says of itself."""
    for name in ("max_size", "chunk_size"):
        most = getattr(part, name, None)
        if isinstance(most, int):
            return most + chunk_tokens
    return None
