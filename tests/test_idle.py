"""Idle costs nothing, and neither do many reloads in the long run."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import psutil
import pytest

from tests.serving.process import serving, write
from tests.test_daemon import entry, running

BUSY = 0.5
"""CPU seconds that an idle server may take in so many wall seconds; mlx-lm's own loop takes some of them."""
WATCHED = 5.0


@pytest.mark.promise(1)
def test_an_idle_server_logs_nothing_and_hardly_works(models: dict[str, Path], tmp_path: Path) -> None:
    write(tmp_path / "prompts.json", [entry("a", "You are a careful reviewer of code. " * 20)])
    with serving(models["llama"], tmp_path / "prompts.json") as server:
        server.wait_for("entry.warmed")
        process = psutil.Process(server.process.pid)
        # What a first look at everything takes is over by then.
        cpu_seconds(process, 1.0)
        lines = len(server.lines)
        assert cpu_seconds(process, WATCHED) < BUSY
        assert server.lines[lines:] == []
        assert server.stop() == 0


def cpu_seconds(process: psutil.Process, seconds: float) -> float:
    """What a process works in so many seconds."""
    before = process.cpu_times()
    try:
        process.wait(seconds)
    except psutil.TimeoutExpired:
        after = process.cpu_times()
    return float(after.user + after.system - before.user - before.system)


@pytest.mark.promise(1)
async def test_hundreds_of_reloads_leave_nothing_behind(tmp_path: Path) -> None:
    async with running(tmp_path / "prompts.json", entry("a")) as it:
        await it.applied(1)

        async def reload(times: int) -> int:
            for number in range(times):
                it.save(entry("a", f"{number % 7} is my number"), entry("b"))
                await it.daemon.reload()
                # Only what a test keeps may grow.
                it.events.clear()
                it.engine.calls.clear()
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        tracemalloc.start()
        try:
            early = await reload(50)
            late = await reload(300)
        finally:
            tracemalloc.stop()
        assert late - early < 100_000
