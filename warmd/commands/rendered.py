"""What a prompts file comes to with a model's tokenizer, for `warmd check --model`."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from warmd.engines.base import Prefix
from warmd.errors import RenderError
from warmd.prefix import Renderer, find_prefix
from warmd.prompts import Document, Entry
from warmd.radix import common_length


@dataclass(frozen=True, slots=True)
class RenderedEntry:
    """One entry in tokens.

    Attributes:
        tokens: Length of its prefix; None when it cannot be kept warm.
        shared: How many of them, from the beginning, some other entry has too.
        problem: Why it cannot be kept warm, or None.
    """

    tokens: int | None
    shared: int | None
    problem: str | None = None


def render_document(
    document: Document, model: str, chat_template_args: dict[str, Any]
) -> tuple[RenderedEntry, ...]:
    """Render every entry with a model's tokenizer; its weights are never loaded.

    Raises:
        CannotStartError: This mlx-lm is too old, or the tokenizer cannot be loaded.
    """
    from warmd.engines.mlx_lm.seams import check_seams

    check_seams()
    from warmd.engines.mlx_lm.folder import check_model_folder
    from warmd.engines.mlx_lm.tokenizer import load_request_path

    model = os.path.expanduser(model)  # noqa: PTH111 - it may be a hub name
    check_model_folder(model, needs_weights=False)
    renderer = load_request_path(model, chat_template_args)
    return describe([_render(entry, renderer) for entry in document.entries])


def describe(prefixes: Sequence[Prefix | RenderError]) -> tuple[RenderedEntry, ...]:
    """Lengths, and what each prefix has in common with the one it is most like."""
    found = [prefix.tokens for prefix in prefixes if isinstance(prefix, Prefix)]
    shared = _shared(found)
    lengths = iter(shared)
    return tuple(
        RenderedEntry(len(prefix), next(lengths))
        if isinstance(prefix, Prefix)
        else RenderedEntry(None, None, str(prefix))
        for prefix in prefixes
    )


def _shared(prefixes: Sequence[tuple[int, ...]]) -> list[int]:
    # In sorted order, what a prefix shares with any other it shares with a neighbour.
    order = sorted(range(len(prefixes)), key=lambda index: prefixes[index])
    shared = [0] * len(prefixes)
    for first, second in itertools.pairwise(order):
        common = common_length(prefixes[first], prefixes[second])
        shared[first], shared[second] = max(shared[first], common), max(shared[second], common)
    return shared


def _render(entry: Entry, renderer: Renderer) -> Prefix | RenderError:
    try:
        return find_prefix(entry, renderer)
    except RenderError as error:
        return error
