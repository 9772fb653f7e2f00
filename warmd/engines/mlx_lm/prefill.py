"""Prefilling one prefix, a chunk at a time, on the engine's thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx_lm.generate import maybe_quantize_kv_cache
from mlx_lm.models.cache import make_prompt_cache

from warmd.engines.base import Prefix, Warmed
from warmd.engines.mlx_lm.store import WarmStore


class Prefill:
    """One prefix on its way into the store. Holds state, never the model: a model must be free to go.

    Args:
        prefix: What to prefill.
        store: Where it goes, and where a held beginning of it is taken from.
        provider: mlx-lm's `ModelProvider`, which knows the model that is loaded now.
        chunk_tokens: Tokens a step.
        on_progress: Called with the tokens done so far.
    """

    def __init__(
        self,
        prefix: Prefix,
        store: WarmStore,
        provider: Any,
        chunk_tokens: int,
        on_progress: Callable[[int], None],
    ) -> None:
        self._prefix = prefix
        self._store = store
        self._provider = provider
        self._chunk_tokens = chunk_tokens
        self._on_progress = on_progress
        self._cache: list[Any] = []
        self._done = self._reused = 0

    def step(self) -> Warmed | None:
        """Compute the next chunk; the result once the last one is done."""
        if not self._cache:
            self._begin()
        # Chunks end where the server's own steps end, as that is where it quantises.
        server_step = self._provider.cli_args.prefill_step_size
        size = min(self._chunk_tokens, server_step - self._done % server_step)
        chunk = self._prefix.tokens[self._done : self._done + size]
        self._done += len(chunk)
        self._compute(mx.array(chunk)[None], quantise=self._done % server_step == 0)
        self._on_progress(self._done)
        return self._finish() if self._done == len(self._prefix) else None

    def _begin(self) -> None:
        held = self._store.match(self._prefix.tokens)
        if held is not None:
            self._cache = self._store.copy_of(held)
            self._done = self._reused = len(held.prefix)
            return
        self._cache = make_prompt_cache(self._provider.model)
        if self._provider.draft_model is not None:
            self._cache += make_prompt_cache(self._provider.draft_model)

    def _compute(self, tokens: mx.array, *, quantise: bool) -> None:
        """Run the model, and the draft model on its own layers, as the server's own prefill does.

        State is quantised where a cold prefill has quantised it when it comes to the token after the prefix.
        What follows the server's last whole step stays as it is: the request quantises it, with its own tail.
        """
        args, model, draft_model = self._provider.cli_args, self._provider.model, self._provider.draft_model
        layers = len(model.layers) if draft_model is not None else len(self._cache)
        parts = [(model, self._cache[:layers])]
        if draft_model is not None:
            parts.append((draft_model, self._cache[layers:]))
        for part, cache in parts:
            part(tokens, cache=cache)
            if quantise:
                maybe_quantize_kv_cache(cache, args.quantized_kv_start, args.kv_group_size, args.kv_bits)
        self._cache = [layer for _, cache in parts for layer in cache]
        mx.eval([layer.state for layer in self._cache])

    def _finish(self) -> Warmed:
        cache, self._cache = self._cache, []
        kv_bytes = self._store.insert(self._prefix, cache)
        # The pool keeps the chunks' temporary buffers; nothing will ask for these sizes soon.
        mx.clear_cache()
        size = len(self._prefix)
        return Warmed(size, size - self._reused, self._reused, kv_bytes)
