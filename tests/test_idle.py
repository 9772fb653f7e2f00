"""Idle costs nothing, and neither do many reloads in the long run."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.serving.process import Server, serving, write
from tests.test_daemon import entry, running
from warmd.settings import Settings, WatchSettings

WATCHED = 5.0
"""Seconds: the period of the re-hash and of the looks at the memory."""

BUSY = 0.1
"""CPU seconds that an idle server may take in that time, mlx-lm's own loop included. It takes 0.011, on a
machine with six times its cores to run too, and the system's clock has steps of 0.01."""

WAKES = 150
"""How often all its threads may wake in that time, as the system counts, the same on a busy machine:
50 times mlx-lm's own loop, 42 times the watch of the directories, 10 times the HTTP server, and the rest."""

LOOP_WAKES = 30
"""How often the daemon's own thread may: a look at the files and one at the memory are 3 to 18 times."""


@dataclass(frozen=True, slots=True)
class Idle:
    """What a server has done while nothing was asked of it.

    Attributes:
        spans: How long that was, in `WATCHED` seconds.
        lines: Logged.
        cpu: Seconds.
        wakes: How often each thread woke; empty where the system does not tell.
        loop: The thread of the daemon.
    """

    spans: float
    lines: list[str]
    cpu: float
    wakes: dict[int, int]
    loop: int


@pytest.fixture(scope="module")
def idle(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Idle:
    prompts = tmp_path_factory.mktemp("idle") / "prompts.json"
    write(prompts, [entry("a", "You are a careful reviewer of code. " * 20)])
    with serving(models["llama"], prompts) as server:
        server.wait_for("entry.warmed")
        # What a first look at everything takes is over by then.
        passed(server, 1.0)
        lines, began = len(server.lines), time.monotonic()
        cpu, woken = cpu_seconds(server), wakes(server)
        passed(server, WATCHED)
        found = Idle(
            (time.monotonic() - began) / WATCHED,
            server.lines[lines:],
            cpu_seconds(server) - cpu,
            {thread: count - woken.get(thread, 0) for thread, count in wakes(server).items()},
            server.process.pid,
        )
        assert server.stop() == 0
    return found


def passed(server: Server, seconds: float) -> None:
    """Let some time pass, in which it does not end."""
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(seconds)


def cpu_seconds(server: Server) -> float:
    """What it has worked so far."""
    times = psutil.Process(server.process.pid).cpu_times()
    return float(times.user + times.system)


def wakes(server: Server) -> dict[int, int]:
    """How often each of its threads has gone to sleep, and so been woken, so far."""
    found = {}
    for thread in Path(f"/proc/{server.process.pid}/task").glob("*"):
        # One that looked at a file may end at any time.
        with suppress(OSError):
            status = (thread / "status").read_text()
            found[int(thread.name)] = int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return found


@pytest.mark.promise(1)
def test_an_idle_server_logs_nothing_and_hardly_works(idle: Idle) -> None:
    assert idle.lines == []
    assert idle.cpu < BUSY * idle.spans


@pytest.mark.promise(1)
def test_an_idle_server_hardly_ever_wakes(idle: Idle) -> None:
    if not idle.wakes:
        pytest.skip("only Linux tells of each thread how often it woke")
    assert 0 < sum(idle.wakes.values()) <= WAKES * idle.spans
    assert idle.wakes[idle.loop] <= LOOP_WAKES * idle.spans


@pytest.mark.promise(1)
def test_nothing_looks_more_often_than_the_rehash(in_force: Settings) -> None:
    assert in_force.watch.rehash >= WATCHED
    assert min(in_force.memory.look, in_force.warm.prove) >= in_force.watch.rehash


@pytest.mark.promise(1)
async def test_hundreds_of_reloads_leave_nothing_behind(tmp_path: Path) -> None:
    """Fewer than half an object for each; `tests.bench` has ten thousand of them."""
    between, number = 400, itertools.count()
    # Nothing but these reloads goes on.
    async with running(tmp_path / "prompts.json", entry("a"), watch=WatchSettings(settle=0, poll=True)) as it:
        await it.applied(1)

        async def blocks_after(times: int) -> int:
            for _ in range(times):
                it.save(entry("a", f"{next(number) % 7} is my number"))
                await it.daemon.reload()
                # Only what a test keeps may grow.
                it.events.clear()
                it.engine.calls.clear()
            gc.collect()
            return sys.getallocatedblocks()

        async def fewest_blocks() -> int:
            """Without timers and the like that some moments have."""
            return min([await blocks_after(10) for _ in range(5)])

        await blocks_after(50)
        # What was there before is not searched for garbage each time.
        gc.freeze()
        try:
            early = await fewest_blocks()
            await blocks_after(between - 50)
            assert await fewest_blocks() - early < between // 2
        finally:
            gc.unfreeze()
