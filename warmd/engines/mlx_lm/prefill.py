"""Prefilling one prefix, a chunk at a time, on the engine's thread."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx_lm.generate import maybe_quantize_kv_cache
from mlx_lm.models.cache import make_prompt_cache

from warmd.engines.base import NoRoomError, Prefix, Warmed
from warmd.engines.mlx_lm import layers
from warmd.engines.mlx_lm.guard import Guard
from warmd.engines.mlx_lm.needs import MIN_SHARED
from warmd.engines.mlx_lm.state import Layout, Snapshot
from warmd.engines.mlx_lm.store import WarmStore
from warmd.engines.pace import Pace
from warmd.radix import Tokens, common_length


def empty_cache(provider: Any) -> list[Any]:
    """A prompt cache for the model and, behind it, for the draft model."""
    cache: list[Any] = make_prompt_cache(provider.model)
    if provider.draft_model is not None:
        cache += make_prompt_cache(provider.draft_model)
    return cache


def compute(provider: Any, cache: list[Any], tokens: mx.array, *, quantise: bool = False) -> list[Any]:
    """Run the model over some tokens, and the draft model on its own layers; returns the cache after them."""
    args, model, draft_model = provider.cli_args, provider.model, provider.draft_model
    count = len(model.layers) if draft_model is not None else len(cache)
    parts = [(model, cache[:count])]
    if draft_model is not None:
        parts.append((draft_model, cache[count:]))
    for part, own in parts:
        part(tokens, cache=own)
        if quantise:
            maybe_quantize_kv_cache(own, args.quantized_kv_start, args.kv_group_size, args.kv_bits)
    cache = [layer for _, own in parts for layer in own]
    mx.eval(layers.arrays_of(cache))
    return cache


class Prefill:
    """One prefix on its way into the store. Holds state, never the model: a model must be free to go.

    Args:
        prefix: What to prefill; also an attribute.
        store: Where it goes, and where a held beginning of it is taken from.
        provider: mlx-lm's `ModelProvider`, which knows the model that is loaded now.
        chunk_tokens: Tokens a step.
        on_progress: Called with the tokens done so far.
        guard: Asked for room before each chunk; None where memory is no concern.
        pace: Makes chunks smaller that would take long; None where time is no concern.
    """

    def __init__(
        self,
        prefix: Prefix,
        store: WarmStore,
        provider: Any,
        chunk_tokens: int,
        on_progress: Callable[[int], None],
        guard: Guard | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.prefix = prefix
        self._store = store
        self._provider = provider
        self._chunk_tokens = chunk_tokens
        self._on_progress = on_progress
        self._guard = guard
        self._pace = pace
        self._cache: list[Any] = []
        self._done = self._reused = 0
        self._spacing = store.checkpoints.spacing
        self._snapshots: dict[int, Snapshot] = {}
        self._has_begun = self._is_doubtful = False

    def step(self) -> Warmed | None:
        """Compute the next chunk; the result once the last one is done.

        Raises:
            NoRoomError: The next chunk does not fit into memory. What has been computed is kept, as far as a
                declared prefix can use it.
        """
        try:
            if not self._cache:
                self._begin()
            if self._done < len(self.prefix):
                self._advance()
            return self._finish() if self._done == len(self.prefix) else None
        except NoRoomError:
            self.abandon()
            raise
        except Exception:
            # Whoever handles the error may keep it, and this object with it.
            self._take()
            raise

    def abandon(self) -> None:
        """Stop here. What has been computed is kept, as far as a declared prefix can use it."""
        if self._done > self._reused and not self._is_doubtful:
            self._keep_part()
        self._take()
        mx.clear_cache()

    def doubt(self) -> None:
        """What has been computed may be wrong: nothing of it is kept when this is abandoned. Any thread."""
        self._is_doubtful = True

    def offer(self, tokens: Tokens) -> None:
        """A request comes: if it begins like the prefix, what has been computed goes into the store for it.

        The next step goes on from there.
        """
        shared = common_length(tokens[: self._done], self.prefix.packed[: self._done])
        if not Layout.of(self._cache, self._done).is_cuttable:
            shared = max((at for at in (*self._snapshots, self._done) if at <= shared), default=0)
        found = self._store.match(tokens)
        gain = min(shared, len(tokens) - 1) - (found.length if found is not None else 0)
        if gain >= MIN_SHARED and not self._is_doubtful and self._has_room_again():
            self._keep_part()

    def _has_room_again(self) -> bool:
        """True when this could go on beside what it gives away."""
        try:
            if self._guard is not None:
                self._guard.admit(len(self.prefix))
        except NoRoomError:
            return False
        return True

    def _keep_part(self) -> None:
        if self._cache:
            self._store.keep_part(self.prefix, self._done, *self._take())

    def _take(self) -> tuple[list[Any], dict[int, Snapshot]]:
        """All state that there is, which is let go of here."""
        self._store.unfinished.pop(self, None)
        taken = self._cache, self._snapshots
        self._cache, self._snapshots = [], {}
        return taken

    def _begin(self) -> None:
        found = self._store.begin(self.prefix)
        if self._guard is not None and (found is None or found.length < len(self.prefix)):
            self._admit(self._guard)
            # What it frees may be what was found.
            found = self._store.begin(self.prefix)
        if found is not None:
            more = len(self.prefix) - found.length
            self._cache, self._done = found.copy(more), found.length
            if more:
                # Now: or it would be taken for what the first chunk takes.
                mx.eval(layers.arrays_of(self._cache))
        else:
            self._cache, self._done = empty_cache(self._provider), 0
        if not self._has_begun:
            self._has_begun, self._reused = True, self._done
        self._store.unfinished[self] = None

    def _admit(self, guard: Guard) -> None:
        try:
            guard.admit(len(self.prefix))
        except NoRoomError:
            if not self._store.free_checkpoints():
                raise
            guard.admit(len(self.prefix))

    def _advance(self) -> None:
        # Chunks end where the server's own steps end, as that is where it quantises.
        server_step = self._provider.cli_args.prefill_step_size
        stop = self._store.stops(self.prefix, self._done, self._spacing)[0]
        size = min(self._chunk_tokens, server_step - self._done % server_step, stop - self._done)
        if self._pace is not None:
            size = min(size, self._pace.size)
        if self._guard is not None:
            size = self._guard.chunk(self._done, size)
        end = self._done + size
        chunk = mx.array(self.prefix.tokens[self._done : end])[None]
        with contextlib.ExitStack() as measuring:
            if self._guard is not None:
                measuring.enter_context(self._guard.measuring(size, end))
            if self._pace is not None:
                measuring.enter_context(self._pace.measuring(size))
            self._compute(chunk, quantise=end % server_step == 0)
        self._done = end
        if end == stop and end < len(self.prefix):
            self._take_snapshot()
        self._on_progress(end)

    def _compute(self, tokens: mx.array, *, quantise: bool) -> None:
        """Run the model, and the draft model on its own layers, as the server's own prefill does.

        State is quantised where a cold prefill has quantised it when it comes to the token after the prefix.
        What follows the server's last whole step stays as it is: the request quantises it, with its own tail.
        """
        self._cache = compute(self._provider, self._cache, tokens, quantise=quantise)

    def _take_snapshot(self) -> None:
        snapshot = Layout.of(self._cache, self._done).snapshot(self._cache)
        if snapshot is None:
            return
        self._snapshots[self._done] = snapshot
        size, limit = layers.nbytes(snapshot), self._store.checkpoints.max_bytes
        if self._guard is not None and not self._guard.can_spare(size):
            limit = 0
        marks = [at for at in self._snapshots if not self._store.is_branch_point(self.prefix, at)]
        while marks and size * len(marks) > limit:
            # Every other one goes, and fewer are made from now on.
            self._spacing *= 2
            for mark in marks:
                if mark % self._spacing:
                    del self._snapshots[mark]
            marks = [mark for mark in marks if mark % self._spacing == 0]

    def _finish(self) -> Warmed:
        # The pool keeps the chunks' temporary buffers; nothing will ask for these sizes soon. Now, as holding
        # copies the state, a layer at a time.
        mx.clear_cache()
        kv_bytes = self._store.hold(self.prefix, *self._take())
        size = len(self.prefix)
        return Warmed(size, size - self._reused, self._reused, kv_bytes)
