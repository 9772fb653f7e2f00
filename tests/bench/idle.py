"""CPU time of an idle server, beside mlx-lm's own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from tests.bench.report import Result, summarise
from tests.bench.rig import Setting, Texts, make_entry, serve
from tests.patience import PATIENCE
from tests.serving.process import free_port

MORE_PER_MINUTE = 0.2
WINDOWS = 3
SETTLE_SECONDS = 3.0

HOW = (
    "`warmd serve` with one warm entry, and `mlx_lm server` on the same model, both idle at the same time; "
    "user and system CPU seconds of each process, in three windows that make up "
    "the idle time, scaled to a minute."
)


def run(setting: Setting) -> Result:
    """Measure."""
    path = setting.folder("idle") / "prompts.json"
    entry = make_entry("short", Texts(setting.model).make(100, 0))
    ours: list[float] = []
    plain: list[float] = []
    with serve(setting, path, [entry]) as server, _plain_server(setting) as other:
        processes = psutil.Process(server.process.pid), psutil.Process(other.pid)
        time.sleep(SETTLE_SECONDS)
        logged = len(server.lines)
        for _ in range(WINDOWS):
            before = [_cpu_seconds(process) for process in processes]
            began = time.perf_counter()
            time.sleep(setting.idle_seconds / WINDOWS)
            minutes = (time.perf_counter() - began) / 60
            after = [_cpu_seconds(process) for process in processes]
            ours.append((after[0] - before[0]) / minutes)
            plain.append((after[1] - before[1]) / minutes)
        logged = len(server.lines) - logged
    more = [one - other for one, other in zip(ours, plain, strict=True)]
    rows = (
        summarise("warmd serve", ours, "CPU s/min"),
        summarise("mlx_lm server", plain, "CPU s/min"),
        summarise("warmd more", more, "CPU s/min", at_most=MORE_PER_MINUTE),
        summarise("lines logged", [float(logged)], "lines", at_most=0),
    )
    return Result("idle", HOW, rows)


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def _plain_server(setting: Setting) -> Iterator[subprocess.Popen[bytes]]:
    port = free_port()
    command = [sys.executable, "-m", "mlx_lm", "server", "--model", str(setting.model), "--port", str(port)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HF_HUB_OFFLINE": "1", **setting.environment},
    )
    try:
        _wait_until_healthy(port)
        yield process
    finally:
        process.kill()
        process.wait()


def _wait_until_healthy(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=PATIENCE):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
