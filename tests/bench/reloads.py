"""Growth over many reloads: of the server's memory, and of what Python holds in the daemon alone."""

from __future__ import annotations

import gc
import statistics
import sys
from pathlib import Path

import anyio
import psutil

from tests.bench.report import Result, Row, summarise
from tests.bench.rig import Setting, Texts, make_entry, save, serve
from tests.serving.process import Json
from warmd.daemon import Daemon
from warmd.settings import Settings, WatchSettings
from warmd.testing import FakeEngine

SAMPLE_EVERY = 100
TIMES_ALONE = 10
"""So many times more reloads are made of the daemon alone, which waits for nothing."""

WARM_UP_SAMPLES = 3
"""Samples that are left out: allocators and caches fill up first."""

HOW = (
    "two documents of two entries that differ in a short one are saved in turn, with "
    "WARMD_WATCH_SETTLE=0.02; each save waits for its prompts.accepted and entry.warmed lines. "
    f"The resident memory of the process is read every {SAMPLE_EVERY} reloads; "
    "the slope is that of the line through the samples after the first "
    f"{WARM_UP_SAMPLES}. Blocks of memory: {TIMES_ALONE} times as many reloads of the daemon on a scripted "
    "engine in this process, one after the other, counting what Python's allocator has given out."
)


def run(setting: Setting) -> Result:
    """Measure."""
    folder = setting.folder("reloads")
    memory = _reload_server(setting, folder / "server.json")
    blocks = anyio.run(_reload_in_process, folder / "daemon.json", TIMES_ALONE * setting.reloads)
    rows = (*_rows("resident memory", memory, "MB"), *_rows("blocks of memory", blocks, "blocks"))
    return Result("reloads", HOW, rows)


def _documents(texts: Texts) -> list[list[Json]]:
    stays = make_entry("stays", texts.make(100, 0))
    return [[stays, make_entry("short", texts.make(40, number))] for number in (1, 2)]


def _reload_server(setting: Setting, path: Path) -> list[float]:
    documents = _documents(Texts(setting.model))
    samples: list[float] = []
    with serve(setting, path, documents[0], WARMD_WATCH_SETTLE="0.02") as server:
        process = psutil.Process(server.process.pid)
        for number in range(1, setting.reloads + 1):
            save(path, documents[number % 2])
            server.wait_for("prompts.accepted")
            server.wait_for("entry.warmed", entry="short")
            if number % SAMPLE_EVERY == 0:
                samples.append(process.memory_info().rss / 1e6)
    return samples


async def _reload_in_process(path: Path, reloads: int) -> list[float]:
    documents = [[make_entry("short", f"This is text {number}.")] for number in (1, 2)]
    save(path, documents[0])
    samples: list[float] = []
    engine = FakeEngine()
    daemon = Daemon(engine, path, Settings(watch=WatchSettings(settle=0, poll=True)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(daemon.run)
        for number in range(1, reloads + 1):
            save(path, documents[number % 2])
            await daemon.reload()
            engine.calls.clear()
            if number % SAMPLE_EVERY == 0:
                gc.collect()
                # Not the collector's list of objects: to hold a tuple that another thread builds breaks it.
                samples.append(float(sys.getallocatedblocks()))
        tasks.cancel_scope.cancel()
    return samples


def _rows(what: str, samples: list[float], unit: str) -> list[Row]:
    settled = samples[WARM_UP_SAMPLES:]
    rows = [
        summarise(f"{what}, first sample", samples[:1], unit),
        summarise(f"{what}, last", samples[-1:], unit),
    ]
    if len(settled) >= 2:
        slope = statistics.linear_regression(range(len(settled)), settled).slope
        rows.append(summarise(f"{what}, slope", [slope], f"{unit}/{SAMPLE_EVERY}"))
    return rows
