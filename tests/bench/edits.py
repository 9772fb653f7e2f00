"""What an edit of an entry costs: the tokens that are prefilled again, and what stays held."""

from __future__ import annotations

from typing import Any

from tests.bench.report import Result, Row, summarise
from tests.bench.rig import PREFIX_TOKENS, Setting, load_architecture
from tests.bench.sharing import ON, PER_TOKEN
from tests.engines.mlx_lm.warming import ids, make_provider, warm
from warmd.engines.base import Prefix
from warmd.engines.mlx_lm.store import WarmStore
from warmd.settings import Settings

SENTENCE = 20
"""Tokens of the last sentence."""
IN_A_ROW = 6
CHECKPOINT = Settings().warm.checkpoint_tokens

HOW = (
    f"an entry of {PREFIX_TOKENS:,} tokens in a warm store; its last {SENTENCE} tokens are replaced "
    f"{IN_A_ROW} times in a row, and then its second half once. As the daemon does, the new prefix is "
    "declared and warmed beside the old one, which is dropped after that. Tokens: the most that one edit "
    "prefilled. Bytes: what is held after the last edit, over what a store holds that is given the last "
    f"text alone. Checkpoints every {CHECKPOINT:,} tokens, on toy models of three kinds."
)


def run(setting: Setting) -> Result:
    """Measure."""
    rows: list[Row] = []
    for architecture, kind in ON.items():
        rows += _rows(load_architecture(setting, architecture), architecture, kind)
    return Result("edits", HOW, tuple(rows))


def _rows(model: Any, architecture: str, kind: str) -> list[Row]:
    entry = _Entry(model)
    entry.become(ids(PREFIX_TOKENS))
    last = max(entry.become(_edited(SENTENCE, seed)) for seed in range(2, 2 + IN_A_ROW))
    half = entry.become(_edited(PREFIX_TOKENS // 2, 2 + IN_A_ROW))
    fresh = _Entry(model)
    fresh.become(_edited(PREFIX_TOKENS // 2, 2 + IN_A_ROW))
    title = f"{architecture} ({kind})"
    # Where the state cannot be cut the prefill goes on from a checkpoint.
    back = 1 if architecture == PER_TOKEN else CHECKPOINT
    return [
        summarise(f"{title}: last sentence", [last], "tokens", at_most=SENTENCE + back),
        summarise(f"{title}: second half", [half], "tokens", at_most=PREFIX_TOKENS // 2 + back),
        summarise(f"{title}: held / as if new", [entry.held_bytes / fresh.held_bytes], "x"),
    ]


def _edited(tail: int, seed: int) -> list[int]:
    return [*ids(PREFIX_TOKENS - tail), *ids(tail, seed)]


class _Entry:
    """An entry in a store of its own."""

    def __init__(self, model: Any) -> None:
        self._provider = make_provider(model)
        self._store = WarmStore()
        self._prefix: Prefix | None = None

    @property
    def held_bytes(self) -> int:
        return self._store.warm_bytes

    def become(self, tokens: list[int]) -> int:
        """Change to these tokens; returns how many were prefilled for it."""
        before, self._prefix = self._prefix, Prefix(tuple(tokens))
        self._store.declare([self._prefix])
        warmed = warm(self._store, self._provider, tokens, Settings().warm.chunk_tokens)
        if before is not None:
            self._store.drop([before.key])
        return warmed.new_tokens
