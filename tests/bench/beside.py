"""The same prompts through vllm-mlx's own warm-up, warmd in vllm-mlx's server, and warmd in mlx-lm's.

    python -m tests.bench.beside --vllm PYTHON --embedded PYTHON

Each server runs with its own interpreter, as the two need different versions of mlx-lm. Tokens are what the
servers themselves log: vllm-mlx of every request that it schedules, warmd of every entry.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.serving.process import free_port
from tests.toys import make_model

SHARED = "You are a careful reviewer of code and name the worst problem first. " * 40
ENTRIES = 12
UNRELATED = 15
PATIENCE = 240.0
SERVERS = ("vllm-mlx", "warmd in vllm-mlx", "warmd in mlx-lm")

Json = dict[str, Any]


def prompts(count: int, edited: str = "") -> list[list[Json]]:
    """Entries that begin alike; the first one may have a sentence more at its end."""
    own = [f"You are agent {number} of the team. " * 3 for number in range(count)]
    own[0] += edited
    return [[{"role": "system", "content": SHARED + text}] for text in own]


@dataclass
class Running:
    """A server and what it has logged."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    model: Path
    is_seed: bool

    def text(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def prefilled(self, since: int = 0) -> int:
        """Tokens prefilled for warming, after so many characters of the log."""
        text = self.text()[since:]
        if self.is_seed:
            return sum(int(found) for found in re.findall(r"tokens_to_prefill=(\d+)", text))
        return sum(int(found) for found in re.findall(r'"entry.warmed".*?"new_tokens": (\d+)', text))

    def wait(self, pattern: str, count: int = 1, since: int = 0) -> None:
        deadline = time.monotonic() + PATIENCE
        while len(re.findall(pattern, self.text()[since:])) < count:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"no {pattern} in:\n{self.text()[-3000:]}")
            time.sleep(0.05)

    def ask(self, messages: list[Json]) -> tuple[float, int]:
        """Seconds to the first token of a stream, and tokens that were served from a cache."""
        since = len(self.text())
        body = {"model": str(self.model), "messages": messages, "max_tokens": 4, "stream": True}
        body["stream_options"] = {"include_usage": True}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        began, first = time.perf_counter(), 0.0
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            for line in answer:
                if b'"content"' in line and not first:
                    first = time.perf_counter() - began
        time.sleep(0.3)
        found = re.findall(r' cached=(\d+) remaining|"live.hit".*?"cached": (\d+)', self.text()[since:])
        return first, max((int(a or b) for a, b in found), default=0)

    def peak(self) -> float:
        """Most memory that the process has had, in megabytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text("ascii")
        found = re.search(r"VmHWM:\s+(\d+)", status)
        return int(found[1]) / 1000 if found else 0.0


@contextmanager
def running(
    kind: str, python: str, model: Path, file: Path, home: Path, **variables: str
) -> Iterator[Running]:
    """One of `SERVERS`, warming a file; its cache on disk is in `home`."""
    port, is_seed = free_port(), kind == SERVERS[0]
    own = ["serve", "--port", str(port)]
    commands = {
        SERVERS[0]: ["vllm_mlx.cli", *own, str(model), "--continuous-batching", "--warm-prompts", str(file)],
        SERVERS[1]: ["warmd", *own, "--engine", "vllm-mlx", "--model", str(model), "--continuous-batching"],
        SERVERS[2]: ["warmd", *own, "--model", str(model)],
    }
    command = [python, "-m", *commands[kind], *([] if is_seed else ["--prompts", str(file)])]
    with tempfile.TemporaryDirectory(prefix="warmd-bench-") as folder:
        log = Path(folder, "log")
        state = {"WARMD_STATE_DIR": folder, "HF_HUB_OFFLINE": "1", "HOME": str(home)}
        with log.open("wb") as stream:
            process = subprocess.Popen(
                command,
                stdout=stream,
                stderr=stream,
                env={**os.environ, **state, **variables},
                cwd=Path(__file__).parents[2],
            )
        try:
            yield Running(process, port, log, model, is_seed)
        finally:
            process.terminate()
            process.wait(60)


def await_warm(server: Running, count: int) -> None:
    if server.is_seed:
        server.wait("Application startup complete")
    else:
        server.wait('"entry.warmed"', count)


def measure(kind: str, python: str, model: Path, hybrid: Path, folder: Path) -> dict[str, str]:
    """One column of the table."""
    file, home = folder / "prompts.json", folder / "home"
    found: dict[str, str] = {}

    def save(entries: Sequence[list[Json]]) -> None:
        file.write_text(json.dumps(entries), "utf-8")

    def ask(server: Running, name: str) -> tuple[float, int]:
        return server.ask([*prompts(1)[0], {"role": "user", "content": f"{name}: what is wrong here?"}])

    save(prompts(ENTRIES))
    with running(kind, python, model, file, home) as server:
        await_warm(server, ENTRIES)
        found["tokens prefilled to warm 12 entries"] = f"{server.prefilled():,}"
        found["peak memory while warming them, MB"] = f"{server.peak():,.0f}"
        answers = [ask(server, f"{number}") for number in range(5)]
        found["first request: time to first token, ms"] = f"{answers[0][0] * 1000:.0f}"
        found["the next four, median, ms"] = f"{median(time for time, _ in answers[1:]) * 1000:.0f}"
        found["tokens of the first request served from the cache"] = f"{answers[0][1]:,}"
        for number in range(UNRELATED):
            server.ask([{"role": "user", "content": f"{number * 7919} " + "Another matter. " * 60}])
        found["the same after 15 unrelated requests"] = f"{ask(server, 'after')[1]:,}"
    for what, entries in (
        ("an edit of one sentence", prompts(ENTRIES, "Answer in one line.")),
        ("one more entry", prompts(ENTRIES + 1)),
    ):
        found[f"tokens prefilled after {what}"] = after_change(kind, python, model, file, home, entries)
    save(prompts(ENTRIES))
    with running(kind, python, model, file, home) as server:
        await_warm(server, ENTRIES)
        found["tokens prefilled after a restart"] = f"{server.prefilled():,}"
    with running(kind, python, hybrid, file, home) as server:
        await_warm(server, ENTRIES)
        found["hybrid model: tokens of a request served"] = f"{ask(server, 'hybrid')[1]:,}"
    return found


def after_change(
    kind: str, python: str, model: Path, file: Path, home: Path, entries: Sequence[list[Json]]
) -> str:
    """vllm-mlx reads its file only when it starts; warmd when it is saved."""
    file.write_text(json.dumps(entries if kind == SERVERS[0] else prompts(ENTRIES)), "utf-8")
    with running(kind, python, model, file, home) as server:
        await_warm(server, ENTRIES)
        if server.is_seed:
            return f"{server.prefilled():,} (restart)"
        since = len(server.text())
        file.write_text(json.dumps(entries), "utf-8")
        server.wait('"entry.warmed"', since=since)
        return f"{server.prefilled(since):,}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", required=True, help="a Python with warmd and vllm-mlx")
    parser.add_argument("--embedded", required=True, help="a Python with warmd and mlx-lm 0.32")
    args = parser.parse_args()
    pythons = dict(zip(SERVERS, (args.vllm, args.vllm, args.embedded), strict=True))
    columns = {}
    with tempfile.TemporaryDirectory() as folder:
        llama = make_model(Path(folder, "llama"))
        hybrid = make_model(Path(folder, "hybrid"), architecture="granitemoehybrid")
        for kind, python in pythons.items():
            place = Path(folder, kind.replace(" ", "-"))
            place.mkdir()
            columns[kind] = measure(kind, python, llama, hybrid, place)
    print("| what | " + " | ".join(SERVERS) + " |\n| --- | --- | --- | --- |")
    for what in columns[SERVERS[0]]:
        print(f"| {what} | " + " | ".join(columns[kind][what] for kind in SERVERS) + " |")


if __name__ == "__main__":
    main()
