"""What it is worth to warm two entries at once beside vllm-mlx, and what it costs requests.

    python -m tests.bench.at_once --vllm PYTHON

Both take turns in the one thread that owns the model, chunk by chunk; nothing is computed at the same time.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from datetime import datetime
from pathlib import Path
from statistics import mean, median

from tests.bench.beside import SERVERS, Json, Running, running
from tests.toys import make_model

ENTRIES = 6
ALIKE = "You are a careful reviewer of code and name the worst problem first. " * 40
REQUESTS_IDLE = 10


def entries(kind: str) -> list[list[Json]]:
    """Entries of one length that begin alike, or with their first word differ."""
    own = [f"You are agent {number} of the team. " * 3 for number in range(ENTRIES)]
    texts = [ALIKE + text if kind == "alike" else text + ALIKE for text in own]
    return [[{"role": "system", "content": text}] for text in texts]


def moments(server: Running, event: str) -> list[float]:
    """When something was logged, in seconds since the epoch."""
    lines = [line for line in server.text().splitlines() if f'"{event}"' in line]
    return [datetime.fromisoformat(json.loads(line)["ts"]).timestamp() for line in lines]


def measure(python: str, model: Path, kind: str, places: int, folder: Path) -> dict[str, float]:
    """One run."""
    file = folder / "prompts.json"
    file.write_text("[]", "utf-8")
    busy: list[float] = []
    variables = {"WARMD_WARM_CONCURRENCY": str(places)}
    with running(SERVERS[1], python, model, file, folder / "home", **variables) as server:
        server.wait('"daemon.ready"')
        request: list[Json] = [{"role": "user", "content": "What is wrong here?"}]
        idle = [server.ask(request)[0] for _ in range(REQUESTS_IDLE)]
        file.write_text(json.dumps(entries(kind)), "utf-8")
        server.wait('"entry.warming"')
        while len(re.findall('"entry.warmed"', server.text())) < ENTRIES:
            busy.append(server.ask(request)[0])
            time.sleep(0.2)
        began = moments(server, "entry.warming")[0]
        warm = [moment - began for moment in moments(server, "entry.warmed")]
        return {
            "tokens prefilled": server.prefilled(),
            "the first entry warm, s": warm[0],
            "an entry warm on average, s": mean(warm),
            "all warm, s": warm[-1],
            "a request's first token, nothing warmed, ms": 1000 * median(idle),
            "the same meanwhile, ms": 1000 * median(busy),
            "the same meanwhile, at most, ms": 1000 * max(busy),
        }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vllm", required=True, help="a Python with warmd and vllm-mlx")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    columns: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        model = make_model(Path(name, "m"), hidden_size=256, intermediate_size=512, num_hidden_layers=4)
        for turn in range(args.rounds):
            for kind in ("alike", "different"):
                for places in (1, 2):
                    folder = Path(name, f"{kind}-{places}-{turn}")
                    folder.mkdir()
                    found = measure(args.vllm, model, kind, places, folder)
                    columns.setdefault(f"{kind}, {places} at once", []).append(found)
    print("| what | " + " | ".join(columns) + " |\n| --- |" + " --- |" * len(columns))
    for what in next(iter(columns.values()))[0]:
        values = (median(run[what] for run in runs) for runs in columns.values())
        print(f"| {what} | " + " | ".join(f"{value:,.{0 if value > 20 else 1}f}" for value in values) + " |")


if __name__ == "__main__":
    main()
