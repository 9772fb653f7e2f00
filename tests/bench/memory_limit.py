"""Warming under a memory limit that does not hold everything, and one that is lowered in the midst of it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
import mlx.core as mx

from tests import patience
from tests.bench.inside import CHUNK, LOOK, UNLIMITED, Inside, RecordingGuard, running
from tests.bench.report import Result, Row, summarise
from tests.bench.rig import Setting, Texts, make_entry, save
from tests.toys import make_model

ENTRIES, FIT = 32, 20
TOKENS = 500
LAYERS, HEADS, HEAD_DIM = 4, 8, 64
LOWERINGS = 5
LOOKS = 5
"""So many looks at the memory are watched after a change."""
PATIENCE = 120.0
"""Seconds in which all that fits has to be warm and the rest given up."""

HOW = (
    f"{ENTRIES} entries of about {TOKENS} tokens, their state {LAYERS} layers of {HEADS} heads of "
    f"{HEAD_DIM} in float32, warmed by the daemon and the engine's thread in this process, without a "
    "reserve. The memory is what mlx counts, active bytes and the pool together: on Linux the footprint of "
    "a Python process holds much besides. It is read as every chunk ends and before each time that the pool "
    "is given back, and does not shrink in between. The limit is what was active before anything was warm, "
    f"what holding {FIT} of the longest entry takes, and the most that warming it takes for a moment, by the "
    "costs that were measured on a first entry. Lowered: in the midst of the first chunk of an entry, to "
    "what is active as it begins, so that giving up that entry is enough. Watched for "
    f"{LOOKS} looks at the memory (every {LOOK * 1000:.0f} ms): chunks that began after that and took more "
    "than the limit, and warm entries that were dropped. Halved: the same, to a limit that holds half of "
    "what is warm, and the time until no more than that is taken."
)


def run(setting: Setting) -> Result:
    """Measure."""
    folder = setting.folder("memory_limit")
    model = make_model(
        folder / "model",
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=HEAD_DIM,
    )
    gc.collect()
    mx.clear_cache()
    return Result("memory_limit", HOW, tuple(anyio.run(_measure, model, folder / "prompts.json")))


async def _measure(model: Path, path: Path) -> list[Row]:
    texts = Texts(model)
    entries = [make_entry(f"entry {number}", texts.make(TOKENS, number)) for number in range(ENTRIES)]
    guard = RecordingGuard()
    save(path, entries[:1])
    async with running(model, path, guard) as inside:
        await inside.until(lambda: inside.count("warm") == 1)
        before: int = mx.get_active_memory() - inside.store.warm_bytes
        limit = before + _room(inside, guard)
        guard.set_limit(limit)
        save(path, entries)
        settled = await _settle(inside)
        rows = _filled(inside, guard)
        rows.append(summarise("until all is done", [settled], "s", at_most=PATIENCE))
        lowered = [await _Lowering(inside, guard).lower(_active) for _ in range(LOWERINGS)]
        halved = await _Lowering(inside, guard).lower(lambda: (before + _active()) // 2)
        guard.set_limit(UNLIMITED)
        with anyio.move_on_after(patience.PATIENCE):
            await inside.until(lambda: inside.count("warm") == ENTRIES)
        rows += _changed(lowered, halved)
        rows.append(summarise("raised: warm", [inside.count("warm")], "entries", at_least=ENTRIES))
    return rows


async def _settle(inside: Inside) -> float:
    """Wait until each entry is warm or put off, and nothing has happened for some looks at the memory.

    Returns:
        The seconds that this took.
    """
    began, told = time.monotonic(), -1
    while told < len(inside.told) or inside.count("warm", "deferred") < ENTRIES:
        if time.monotonic() > began + PATIENCE:
            break
        told = len(inside.told)
        await anyio.sleep(LOOKS * LOOK)
    return time.monotonic() - began


def _room(inside: Inside, guard: RecordingGuard) -> int:
    """What as many entries take as are meant to fit, and the warming of one."""
    cost, (entry,) = guard.cost, inside.daemon.statistics().entries
    if cost is None or entry.tokens is None:
        raise RuntimeError("nothing is known of the costs")
    return FIT * cost.kept(entry.tokens, entry.tokens) + cost.peak(entry.tokens)


def _active() -> int:
    return int(mx.get_active_memory())


def _filled(inside: Inside, guard: RecordingGuard) -> list[Row]:
    limit = guard.limit.size or 0
    over = sum(chunk.taken > limit for chunk in guard.chunks)
    return [
        summarise("limit", [limit / 1e6], "MB"),
        summarise("taken at most", [guard.most / 1e6], "MB", at_most=limit / 1e6),
        summarise("chunks over the limit", [over], f"of {len(guard.chunks)}", at_most=0),
        summarise("warm", [inside.count("warm")], "entries", at_least=FIT),
        summarise("deferred", [inside.count("deferred")], "entries"),
    ]


@dataclass(frozen=True, slots=True)
class _Lowered:
    """What followed when the limit was lowered in the midst of a chunk.

    Attributes:
        chunks: How many began after that and took more than the limit.
        seconds: Until no more than the limit was taken; more than was watched where it never was.
        dropped: Entries that were dropped.
    """

    chunks: int
    seconds: float
    dropped: int


class _Lowering:
    """Lowers the limit in the midst of the first chunk of an entry."""

    def __init__(self, inside: Inside, guard: RecordingGuard) -> None:
        self._inside = inside
        self._guard = guard
        self._at: float | None = None
        self._limit = 0

    async def lower(self, to: Callable[[], int]) -> _Lowered:
        """Raise the limit, so that something is warmed, and lower it then."""

        def in_chunk(end: int) -> None:
            # Later chunks may be an entry's last.
            if self._at is None and end <= TOKENS - CHUNK // 2:
                self._limit, self._at = to(), time.monotonic()
                self._guard.set_limit(self._limit)

        self._guard.in_chunk = in_chunk
        self._guard.set_limit(UNLIMITED)
        await self._inside.until(lambda: self._at is not None)
        return await self._watch(self._at or 0.0)

    async def _watch(self, at: float) -> _Lowered:
        seconds = 2 * LOOKS * LOOK
        while time.monotonic() < at + LOOKS * LOOK:
            if _active() + mx.get_cache_memory() <= self._limit:
                seconds = min(seconds, time.monotonic() - at)
            await anyio.sleep(0.01)
        chunks = sum(chunk.began > at and chunk.taken > self._limit for chunk in self._guard.chunks)
        dropped = sum(told.at > at and told.event.name == "entry.dropped" for told in self._inside.told)
        return _Lowered(chunks, seconds, dropped)


def _changed(lowered: list[_Lowered], halved: _Lowered) -> list[Row]:
    over = sum(each.chunks for each in lowered)
    return [
        summarise(f"lowered {LOWERINGS} times: chunks over it", [over], "chunks", at_most=0),
        summarise("lowered: until obeyed", [each.seconds for each in lowered], "s", at_most=LOOKS * LOOK),
        summarise("lowered: dropped", [each.dropped for each in lowered], "entries"),
        summarise("halved: chunks over it", [halved.chunks], "chunks", at_most=0),
        summarise("halved: until obeyed", [halved.seconds], "s", at_most=LOOKS * LOOK),
        summarise("halved: dropped", [halved.dropped], "entries"),
    ]
