"""What a model's files depend on, and how its state is kept: found out when it is loaded, by tracing."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import mlx.core as mx
from mlx_lm.generate import maybe_quantize_kv_cache

from warmd.disk.identity import Identity, Weights
from warmd.engines.mlx_lm import layers
from warmd.engines.mlx_lm.layers import Kind
from warmd.engines.mlx_lm.measure import Trace
from warmd.engines.mlx_lm.packing import Form, shapes_of

_TOKENS = 24
"""Traced, as in `measure`."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the loaded model.

    Attributes:
        forms: How its state is kept, by whether it is quantised.
        identity: What its state depends on.
        digest: Names the identity.
        model: For people.
    """

    forms: Mapping[bool, Form]
    identity: Identity
    digest: str
    model: str


def forms_of(run: Trace, args: Any) -> dict[bool, Form]:
    """How a model's state is kept, by whether it is quantised; that only where the server quantises.

    Args:
        run: See `measure.trace`; nothing is computed.
        args: The server's flags.
    """
    plain = run(_TOKENS)
    forms = {False: _form(plain, is_quantised=False)}
    if args.kv_bits is not None:
        maybe_quantize_kv_cache(plain, 0, args.kv_group_size, args.kv_bits)
        forms[True] = _form(plain, is_quantised=True)
    return forms


def _form(cache: Sequence[Any], *, is_quantised: bool) -> Form:
    found = tuple(layers.parts(cache))
    kinds = tuple(layers.kind_of(part, _TOKENS) for part in found)
    rows = tuple(
        shapes_of(layers.cut_rows(part, 0, 1)) if kind is Kind.ROWS else None
        for part, kind in zip(found, kinds, strict=True)
    )
    likes = tuple(_like(part, kind) for part, kind in zip(found, kinds, strict=True))
    return Form(is_quantised, kinds, likes, rows)


def _like(part: Any, kind: Kind) -> Any:
    """A part of the same class that holds nothing: what was traced would keep the model."""
    if kind is Kind.ROWS:
        return layers.template_of(part)
    if kind is Kind.SNAPSHOT:
        part = copy.copy(part)
        for key in vars(part):
            setattr(part, key, None)
    return part


def identity_of(weights: Mapping[str, Weights], forms: Mapping[bool, Form], args: Any) -> Identity:
    """All that a model's state depends on.

    Args:
        weights: Of `model`, and where there are such of `adapter` and `draft_model`.
        forms: How its state is kept.
        args: The server's flags.
    """
    quantising = [args.kv_bits, args.kv_group_size, args.quantized_kv_start, args.prefill_step_size]
    return {
        **{name: weights.get(name) for name in ("model", "adapter", "draft_model")},
        "kv_bits": quantising if args.kv_bits is not None else None,
        "cache_layout": [_describe(forms[key]) for key in sorted(forms)],
        "mlx": _minor(version("mlx")),
        "mlx_lm": _minor(version("mlx-lm")),
        "device": _device(),
    }


def _describe(form: Form) -> list[list[str]]:
    parts = zip(form.kinds, form.likes, form.rows, strict=True)
    return [[type(like).__name__, kind.name, str(rows)] for kind, like, rows in parts]


def _minor(text: str) -> str:
    return ".".join(text.split(".")[:2])


def _device() -> str:
    info: Mapping[str, Any] = mx.device_info()
    return f"{mx.default_device().type.name} {info.get('architecture', '')} {info.get('device_name', '')}"
