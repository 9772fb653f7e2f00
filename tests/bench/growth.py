"""What one more entry costs, by how many there are."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

import anyio

from tests.bench.inside import Inside, RecordingGuard, running
from tests.bench.report import Result, Row, summarise
from tests.bench.rig import Setting, Texts, make_entry, save
from tests.serving.process import Json

SHARED, OWN = 64, 24
COUNTS = (10, 100, 250, 500)
FIRST, LAST = COUNTS[0], COUNTS[-1]
WINDOW = 9
"""So many additions, up to each count, make up a figure."""
TIMES = 2.0

HOW = (
    f"entries of about {SHARED} tokens that all begin alike and {OWN} of their own are added to the file one "
    "at a time, each once the one before is warm, by the daemon and the engine's thread in this process. The "
    "time is from prompts.accepted to entry.warmed less that of the computed chunks: rendering, planning, "
    "storing and proving. CPU time is that of all threads, computing included. Figures are of the "
    f"{WINDOW} additions up to a count; the rest is added at once."
)


def run(setting: Setting) -> Result:
    """Measure."""
    path = setting.folder("growth") / "prompts.json"
    added = anyio.run(_grow, setting.model, path)
    rows: list[Row] = []
    for count, each in added.items():
        rows += _rows(count, each)
    return Result("growth", HOW, (*rows, *_compare(added[FIRST], added[LAST])))


@dataclass(frozen=True, slots=True)
class _Added:
    """One addition.

    Attributes:
        milliseconds: From the acceptance to warm, less the computing.
        before: Of these, until the warming began.
        busy: CPU time of the process meanwhile, computing included.
        tokens: Prefilled.
    """

    milliseconds: float
    before: float
    busy: float
    tokens: int


async def _grow(model: Path, path: Path) -> dict[int, list[_Added]]:
    entries = _make_entries(Texts(model))
    guard = RecordingGuard()
    added: dict[int, list[_Added]] = {}
    save(path, entries[:1])
    async with running(model, path, guard) as inside:
        await inside.until(lambda: inside.count("warm") == 1)
        for count in COUNTS:
            await _fill(inside, path, entries[: count - WINDOW])
            added[count] = [
                await _add(inside, guard, path, entries[:number])
                for number in range(count - WINDOW + 1, count + 1)
            ]
    return added


async def _fill(inside: Inside, path: Path, entries: list[Json]) -> None:
    """Save a file, and wait until all of it is warm."""
    save(path, entries)
    await inside.until(lambda: inside.count("warm") == len(entries))


async def _add(inside: Inside, guard: RecordingGuard, path: Path, entries: list[Json]) -> _Added:
    """Save a file with one entry more, and wait until that is warm."""
    before, computed = len(inside.told), len(guard.chunks)
    save(path, entries)
    await inside.until(lambda: any(told.event.name == "entry.warmed" for told in inside.told[before:]))
    told = {each.event.name: each for each in inside.told[before:]}
    accepted, warmed = told["prompts.accepted"], told["entry.warmed"]
    computing = sum(chunk.seconds for chunk in guard.chunks[computed:])
    return _Added(
        (warmed.at - accepted.at - computing) * 1000,
        (told["entry.warming"].at - accepted.at) * 1000,
        (warmed.busy - accepted.busy) * 1000,
        int(warmed.event.fields["new_tokens"]),
    )


def _make_entries(texts: Texts) -> list[Json]:
    """Entries that differ in the words after a common text."""
    shared, words = texts.make(SHARED, 0), texts.make(OWN, 0).split()
    # Numbers as words: each takes the same tokens, and any two part soon.
    digits = words[1:9]
    return [
        make_entry(
            f"entry {number}", " ".join([shared, *(digits[number >> by & 7] for by in (0, 3, 6)), *words])
        )
        for number in range(LAST)
    ]


def _rows(count: int, added: list[_Added]) -> list[Row]:
    return [
        summarise(f"{count} entries: one more", [each.milliseconds for each in added], "ms"),
        summarise("  of that until it is being warmed", [each.before for each in added], "ms"),
        summarise("  CPU time meanwhile", [each.busy for each in added], "ms"),
        summarise("  prefilled", [each.tokens for each in added], "tokens"),
    ]


def _compare(first: list[_Added], last: list[_Added]) -> list[Row]:
    times = statistics.median(each.milliseconds for each in first)
    busy = statistics.median(each.busy for each in first)
    tokens = statistics.median(each.tokens for each in first)
    what = f"{LAST} entries / {FIRST}"
    return [
        summarise(what, [each.milliseconds / times for each in last], "x", at_most=TIMES),
        summarise(f"{what}, CPU time", [each.busy / busy for each in last], "x", at_most=TIMES),
        summarise(f"{what}, prefilled", [each.tokens / tokens for each in last], "x", at_most=1),
    ]
