"""One prefix on its way into the store: what disk has of it first, then the rest by prefilling."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from warmd.engines.base import Warmed
from warmd.engines.mlx_lm.keeper import Keeper
from warmd.engines.mlx_lm.loading import Loaded, Loading
from warmd.engines.mlx_lm.prefill import Prefill

_WORTH_MEASURING = 64
"""Tokens: fewer do not tell how fast a model prefills."""


class Warming:
    """A job for the engine's thread.

    Args:
        prefill: Of the prefix.
        keeper: The files.
        open_loading: Begins to load the prefix; returns None where there is nothing to be had.
    """

    def __init__(self, prefill: Prefill, keeper: Keeper, open_loading: Callable[[], Loading | None]) -> None:
        self._prefill = prefill
        self._keeper = keeper
        self._open_loading = open_loading
        self._loading: Loading | None = None
        self._loaded: Loaded | None = None
        self._seconds = 0.0

    def step(self) -> Warmed | None:
        """Take in the next file or compute the next chunk; the result once the last one is done.

        Raises:
            NoRoomError: The next chunk does not fit into memory; see `Prefill.step`.
        """
        if self._loaded is None:
            self._load()
            return None
        began = time.perf_counter()
        warmed = self._prefill.step()
        self._seconds += time.perf_counter() - began
        return self._told(warmed, self._loaded) if warmed is not None else None

    def abandon(self) -> None:
        """Stop here; see `Prefill.abandon`."""
        if self._loading is not None:
            self._loading.abandon()
        self._prefill.abandon()

    def _load(self) -> None:
        if self._loading is None:
            self._loading = self._open_loading()
        if self._loading is None:
            self._loaded = Loaded()
        elif self._step(self._loading):
            self._loaded, self._loading = self._loading.loaded, None

    def _step(self, loading: Loading) -> bool:
        try:
            return loading.step()
        except Exception as error:  # noqa: BLE001 - what can be prefilled must not fail for the disk
            loading.abandon()
            self._keeper.tell.failed("read", type(error).__name__)
            return True

    def _told(self, warmed: Warmed, loaded: Loaded) -> Warmed:
        if warmed.new_tokens >= _WORTH_MEASURING:
            self._keeper.tokens_per_s = warmed.new_tokens / max(self._seconds, 1e-6)
        self._keeper.wake()
        # None of it where what was loaded was freed again before the prefill began.
        tokens = min(loaded.tokens, warmed.reused_tokens)
        if tokens == 0:
            return warmed
        return replace(
            warmed,
            reused_tokens=warmed.reused_tokens - tokens,
            source="disk" if tokens >= warmed.new_tokens else "prefill",
            disk_tokens=tokens,
            disk_bytes=loaded.nbytes,
            disk_ms=round(1000 * loaded.seconds),
        )
