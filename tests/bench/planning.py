"""The time that planning takes, and a look-up, by the number of entries."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from tests.bench.report import Result, Row, summarise
from tests.bench.rig import Setting
from tests.engines.mlx_lm.warming import ids
from warmd.admission import Room, admit, entry_costs
from warmd.engines.base import Prefix
from warmd.engines.mlx_lm.prompt_cache import WarmPromptCache
from warmd.engines.mlx_lm.store import WarmStore
from warmd.ledger import Ledger, Rendered
from warmd.memory.cost import Cost
from warmd.memory.readings import Memory
from warmd.plan import make_plan
from warmd.prompts.document import Document, Entry
from warmd.radix import Sharing

SHARED, OWN = 1000, 200
REQUEST = 4000
PLAN_MS, LOOK_UP_MS = 50.0, 2.0
COUNTS = (64, 500)
PROMISED = COUNTS[0]
COST = Cost(row_bytes=1 << 10)

HOW = (
    f"entries of {SHARED + OWN:,} tokens that share the first {SHARED:,}, their prefixes ready made. "
    "Planning is what the daemon does between rendering and the first chunk: ledger, plan, admission, "
    "costs, and the store's taking note of what is declared; into an empty store, after one edit with the "
    "others held, and with half of them held when the other half, of higher priority, needs their room. "
    "A ladder: entries that part one token after the other. "
    f"Look-up: a request of {REQUEST:,} tokens against a store that holds them all (tiny caches that were "
    "never computed): one that begins with a whole entry, one that parts from it in its own tokens, and one "
    "that parts in the first token. Through the prompt cache: all that a hit takes before anything is "
    "copied, less the making of the lazy copy."
)


def run(setting: Setting) -> Result:
    """Measure."""
    rows: list[Row] = []
    for count in COUNTS:
        rows += _planning_rows(count, setting.rounds)
        rows += _look_up_rows(count, setting.rounds)
    return Result("planning", HOW, tuple(rows))


def make_prefixes(count: int) -> list[Prefix]:
    """Prefixes with a common beginning; no two share a token of their own."""
    shared = ids(SHARED)
    return [Prefix((*shared, *_own(number))) for number in range(count)]


def make_ladder(count: int) -> list[Prefix]:
    """Prefixes that part one after the other: the deepest tree that so many can make."""
    shared = ids(SHARED)
    return [Prefix((*shared[: SHARED - number], *_own(number))) for number in range(count)]


def _own(number: int) -> list[int]:
    # The first tells them apart, so that they all part in one place.
    return [1000 + number, *ids(OWN - 1, number)]


def fill(store: WarmStore, prefixes: Sequence[Prefix]) -> None:
    """Hold prefixes, with caches that nothing was computed for."""
    store.declare(prefixes)
    for prefix in prefixes:
        rows = mx.zeros((1, 1, len(prefix), 4))
        store.hold(prefix, [KVCache.from_state((rows, rows, len(prefix)))], {})


# --- planning ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Case:
    """A document to plan for, and what there is."""

    before: Sequence[Prefix]
    after: Sequence[Prefix]
    held: Sequence[Prefix]
    memory: Memory
    priorities: Sequence[int]


def _cases(count: int) -> dict[str, _Case]:
    prefixes = make_prefixes(count + 1)
    first, edited = prefixes[:count], [prefixes[count], *prefixes[1:count]]
    plenty = Memory(1 << 40, 0, 0, 0, 1 << 40, 1)
    half = replace(plenty, limit=COST.peak(SHARED + OWN), headroom=COST.peak(SHARED + OWN))
    flat, rising = [0] * count, list(range(count))
    return {
        "nothing held": _Case([], first, [], plenty, flat),
        "one edited": _Case(first, edited, first, plenty, flat),
        "half in the way": _Case(first, first, first[: count // 2], half, rising),
        "a ladder": _Case([], make_ladder(count), [], plenty, flat),
    }


def _planning_rows(count: int, rounds: int) -> list[Row]:
    cases = _cases(count)
    samples: dict[str, list[float]] = {what: [] for what in cases}
    for _ in range(rounds):
        for what, case in cases.items():
            samples[what].append(_time_planning(case))
    bound = PLAN_MS if count == PROMISED else None
    return [
        summarise(f"{count} entries: plan, {what}", found, "ms", at_most=bound)
        for what, found in samples.items()
    ]


def _time_planning(case: _Case) -> float:
    store, ledger, sharing = WarmStore(), Ledger(), Sharing()
    fill(store, case.held)
    store.declare(case.before)
    ledger.update(*_document(case.before, case.priorities))
    sharing.become({prefix.key: prefix.packed for prefix in case.held})
    document = _document(case.after, case.priorities)
    began = time.perf_counter()
    _plan(case, document, ledger, store, sharing)
    return (time.perf_counter() - began) * 1000


def _document(prefixes: Sequence[Prefix], priorities: Sequence[int]) -> tuple[Document, dict[str, Rendered]]:
    entries = tuple(
        Entry(f"#{index}", index, ({"role": "system"},), None, {}, priorities[index], prefix.key)
        for index, prefix in enumerate(prefixes)
    )
    return Document(Path("/prompts.json"), "", "", entries, ()), {p.key: p for p in prefixes}


def _plan(
    case: _Case,
    document: tuple[Document, dict[str, Rendered]],
    ledger: Ledger,
    store: WarmStore,
    sharing: Sharing,
) -> None:
    """As `warmd.daemon.Daemon` does it."""
    ledger.update(*document)
    wanted, held, prefixes = ledger.wanted(document[0], 0.0), store.held, ledger.prefixes()
    plan = make_plan(wanted, held, previous=ledger.previous(held))
    plan = admit(plan, wanted, Room(case.memory, COST, prefixes, frozenset(held), sharing=sharing))
    entry_costs(plan, prefixes, COST, sharing)
    store.declare([slot.prefix for key, slot in ledger.slots.items() if key not in plan.short])


# --- looking up ----------------------------------------------------------------------------------


def _look_up_rows(count: int, rounds: int) -> list[Row]:
    prefixes = make_prefixes(count)
    store = WarmStore()
    fill(store, prefixes)
    cache = WarmPromptCache(store, 10)
    requests = _requests(prefixes[count // 2])
    match: dict[str, list[float]] = {what: [] for what in requests}
    through: list[float] = []
    for _ in range(rounds):
        for what, tokens in requests.items():
            match[what].append(_milliseconds(lambda tokens=tokens: store.match(tokens)))  # type: ignore[misc]
        through.append(_time_through(cache, store, requests["a whole entry"]))
    bound = LOOK_UP_MS if count == PROMISED else None
    return [
        *(
            summarise(f"{count} entries: look-up, {what}", found, "ms", at_most=bound)
            for what, found in match.items()
        ),
        summarise(f"{count} entries: through the prompt cache", through, "ms", at_most=bound),
    ]


def _requests(prefix: Prefix) -> dict[str, list[int]]:
    rest = ids(REQUEST, 3)
    whole = list(prefix.tokens)
    return {
        "a whole entry": [*whole, *rest][:REQUEST],
        "half of its own tokens": [*whole[: SHARED + OWN // 2], 5, *rest][:REQUEST],
        "nothing": [5, *rest][:REQUEST],
    }


def _time_through(cache: WarmPromptCache, store: WarmStore, tokens: list[int]) -> float:
    found = store.match(tokens)
    if found is None:
        raise RuntimeError("a request that begins with a held entry found nothing")
    copying = _milliseconds(lambda: found.copy(len(tokens) - found.length))
    return _milliseconds(lambda: cache.fetch_nearest_cache(None, tokens)) - copying


def _milliseconds(function: Callable[[], Any]) -> float:
    began = time.perf_counter()
    function()
    return (time.perf_counter() - began) * 1000
