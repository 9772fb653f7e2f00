"""What several entries that begin alike cost together: tokens prefilled, and bytes held."""

from __future__ import annotations

from typing import Any

from tests.bench.report import Result, Row, summarise
from tests.bench.rig import Setting, load_architecture
from tests.engines.mlx_lm.warming import ids, make_provider, prefilled, warm
from warmd.engines.base import Prefix
from warmd.engines.mlx_lm.store import WarmStore
from warmd.settings import Settings

ENTRIES = 6
SHARED = 400
OWN = 60
UNIQUE = SHARED + ENTRIES * OWN
MOST_TOKENS = UNIQUE + ENTRIES
MOST_BYTES = 1.1
PER_TOKEN = "llama"
"""The architecture whose state is all per token, so that nothing but the unique tokens need be held."""

ON = {PER_TOKEN: "per token", "gemma3_text": "sliding window", "granitemoehybrid": "recurrent"}

HOW = (
    f"{ENTRIES} entries of {SHARED + OWN} tokens that share the first {SHARED}, prefilled into a warm store "
    "one after the other as the engine does, on toy models of three kinds. Unique tokens: what one cold "
    f"prefill of {UNIQUE} tokens has in its caches, without the room that these keep for more. {ENTRIES} "
    "caches: as mlx-lm would keep them, one for each entry, counted by itself. State that is not "
    "per token is held once at each end and where the entries part; what that takes goes by the size of a "
    "window or a recurrent state and not by the tokens, so the bytes have no bound there."
)


def run(setting: Setting) -> Result:
    """Measure."""
    rows: list[Row] = []
    for architecture, kind in ON.items():
        rows += _rows(load_architecture(setting, architecture), architecture, kind)
    return Result("sharing", HOW, tuple(rows))


def _rows(model: Any, architecture: str, kind: str) -> list[Row]:
    entries = [[*ids(SHARED), *ids(OWN, seed)] for seed in range(2, 2 + ENTRIES)]
    provider, store = make_provider(model), WarmStore()
    store.declare([Prefix(tuple(tokens)) for tokens in entries])
    chunk = Settings().warm.chunk_tokens
    done = sum(warm(store, provider, tokens, chunk).new_tokens for tokens in entries)
    whole = sum(layer.nbytes for tokens in entries for layer in prefilled(model, tokens))
    title = f"{architecture} ({kind})"
    rows = [
        summarise(f"{title}: prefilled", [float(done)], "tokens", at_most=MOST_TOKENS),
        summarise(f"{title}: held", [store.warm_bytes / 1e3], "kB"),
        summarise(f"{title}: held / {ENTRIES} caches", [store.warm_bytes / whole], "x"),
    ]
    if architecture == PER_TOKEN:
        used = store.warm_bytes / _unique_bytes(model)
        rows.append(summarise(f"{title}: held / unique tokens", [used], "x", at_most=MOST_BYTES))
    return rows


def _unique_bytes(model: Any) -> int:
    caches = prefilled(model, ids(UNIQUE))
    return sum(array[..., :UNIQUE, :].nbytes for layer in caches for array in (layer.keys, layer.values))
