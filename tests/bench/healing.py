"""From a loss to warm again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import anyio
import anyio.to_thread

from tests.bench.inside import Inside, RecordingGuard, running
from tests.bench.report import Result, Row, summarise
from tests.bench.rig import Setting, Texts, make_entry, save
from warmd.engines.mlx_lm.desk import Job
from warmd.engines.mlx_lm.kvtree import KVTree
from warmd.settings import WarmSettings

ENTRIES, TOKENS = 20, 500
OFTEN = 10_000

HOW = (
    f"{ENTRIES} entries of about {TOKENS} tokens, warm, by the daemon and the engine's thread in this "
    "process. All: what the engine holds is thrown away, as it is when memory ends in the midst of storing "
    "one more entry; the time is from that error. One: an entry's state is taken out of the store behind its "
    "back, so that only a proof can see it; the time is from the beginning of the proof, which looks at each "
    "entry in turn, another one lost each round. To that comes the wait for the next proof: [warm] prove, 10 "
    "minutes, or nothing after a sleep. Computing: the chunks that were computed for it. The rest is mostly "
    "the idle engine's wait for work."
)


@dataclass(frozen=True, slots=True)
class _Healed:
    """One loss, in milliseconds.

    Attributes:
        told: Until it was noticed.
        warm: Until all was warm again.
        computing: Of these, the chunks.
    """

    told: float
    warm: float
    computing: float


def run(setting: Setting) -> Result:
    """Measure."""
    path = setting.folder("healing") / "prompts.json"
    return Result("healing", HOW, tuple(anyio.run(_measure, setting, path)))


async def _measure(setting: Setting, path: Path) -> list[Row]:
    texts = Texts(setting.model)
    entries = [make_entry(f"entry {number}", texts.make(TOKENS, number)) for number in range(ENTRIES)]
    save(path, entries)
    # Nothing else is to prove, and no loss is to be one too many.
    warm = WarmSettings(prove=3600, rewarms_per_hour=OFTEN)
    async with running(setting.model, path, RecordingGuard(), warm) as inside:
        healing = _Healing(inside)
        await healing.until_warm(ENTRIES)
        alone, seen, everything = [], [], []
        for number in range(setting.rounds):
            alone.append(await healing.prove())
            seen.append(await healing.lose_one(f"entry {number % ENTRIES}"))
        for number in range(setting.rounds):
            more = [*entries, make_entry("one more", texts.make(TOKENS, ENTRIES + number))]
            everything.append(await healing.lose_all(path, more))
            await healing.until_warm(ENTRIES + 1)
    return [
        summarise(f"a proof of {ENTRIES} entries, nothing lost", alone, "ms"),
        *_rows("one, seen by a proof", seen),
        *_rows("all, thrown away by the engine", everything),
    ]


class _Healing:
    def __init__(self, inside: Inside) -> None:
        self._inside = inside

    async def until_warm(self, count: int) -> None:
        """Wait until so many entries are warm."""
        await self._inside.until(lambda: self._inside.count("warm") == count)

    async def prove(self) -> float:
        """The milliseconds of a proof."""
        began = time.monotonic()
        await self._inside.daemon._prover.prove()
        return (time.monotonic() - began) * 1000

    async def lose_one(self, name: str) -> _Healed:
        """Take an entry's state out of the store without its knowing, and prove."""
        (key,) = self._inside.daemon._ledger.keys_of([name])
        done = self._inside.room.desk.submit(Job(lambda: self._take_out(key)), is_quick=True)
        await anyio.to_thread.run_sync(done.result)
        began = time.monotonic()
        await self.prove()
        return await self._healed(began)

    def _take_out(self, key: str) -> bool:
        store = self._inside.store
        for tree in store._trees.values():
            tree.drop(key, store._wanted[key].packed)
        return True

    async def lose_all(self, path: Path, entries: list[Any]) -> _Healed:
        """Let the store fail while it takes over one more entry."""
        failed: list[float] = []
        deposit = KVTree.deposit

        def fail_once(*args: Any) -> Any:
            if not failed:
                failed.append(time.monotonic())
                raise MemoryError
            return deposit(*args)

        with mock.patch.object(KVTree, "deposit", fail_once):
            save(path, entries)
            await self._inside.until(lambda: bool(failed))
            return await self._healed(failed[0])

    def _is_warm(self) -> bool:
        """True when all that was warm in the beginning is so."""
        entries = self._inside.daemon.statistics().entries
        return all(entry.state == "warm" for entry in entries[:ENTRIES])

    async def _healed(self, began: float) -> _Healed:
        """Wait until the losses since a moment are healed."""
        told = self._inside.told

        def times(name: str) -> list[float]:
            return [each.at for each in told if each.at >= began and each.event.name == name]

        def is_healed() -> bool:
            lost, warmed = times("entry.lost"), times("entry.warmed")
            return 0 < len(lost) <= len(warmed) and self._is_warm()

        await self._inside.until(is_healed)
        lost, end = times("entry.lost")[0], times("entry.warmed")[-1]
        guard = self._inside.room.guard
        assert isinstance(guard, RecordingGuard)
        computing = sum(chunk.seconds for chunk in guard.chunks if began <= chunk.began <= end)
        return _Healed((lost - began) * 1000, (end - began) * 1000, computing * 1000)


def _rows(what: str, found: list[_Healed]) -> list[Row]:
    return [
        summarise(f"{what}: until noticed", [each.told for each in found], "ms"),
        summarise(f"{what}: until warm again", [each.warm for each in found], "ms"),
        summarise(f"{what}: of that computing", [each.computing for each in found], "ms"),
    ]
