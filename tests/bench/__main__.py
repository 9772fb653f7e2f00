"""Runs the benchmarks and prints one table for each model."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests import patience
from tests.bench import (
    busy,
    disk,
    edits,
    growth,
    handout,
    healing,
    idle,
    interference,
    matching,
    memory_limit,
    planning,
    ranks,
    reloads,
    saves,
    sharing,
    ttft,
)
from tests.bench.report import Result, as_json, format_table
from tests.bench.rig import Setting, dequantise, describe_load, find_openblas
from tests.toys import make_model

BENCHMARKS: dict[str, Callable[[Setting], Result]] = {
    "ttft": ttft.run,
    "save_to_plan": saves.run_save_to_plan,
    "add_one": saves.run_add_one,
    "interference": interference.run,
    "busy": busy.run,
    "idle": idle.run,
    "reloads": reloads.run,
    "sharing": sharing.run,
    "edits": edits.run,
    "planning": planning.run,
    "matching": matching.run,
    "handout": handout.run,
    "memory_limit": memory_limit.run,
    "growth": growth.run,
    "healing": healing.run,
    "disk": disk.run,
    "ranks": ranks.run,
}
# Growth does not depend on the model's size, and a real one takes many minutes over it; the store is measured
# on toy models of several kinds, or on state that was never computed.
ON_TINY_ONLY = {
    "reloads",
    "sharing",
    "edits",
    "planning",
    "matching",
    "handout",
    "memory_limit",
    "growth",
    "healing",
    # Two ranks share its heads evenly.
    "ranks",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for. Promises that are missed are shown, and change the exit code to 1."""
    args = _parse(arguments)
    # Cold requests to a real model without a fast BLAS take minutes.
    patience.PATIENCE = 900.0
    found = [_run(name, args) for name in args.model or ["tiny"]]
    if args.json == "-":
        print(json.dumps(found, indent=2))
    elif args.json:
        Path(args.json).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    missed = [
        row
        for table in found
        for result in table["results"]
        for row in result["rows"]
        if row["is_met"] is False
    ]
    return 1 if missed else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "--model", action="append", help="tiny (default), smollm or a model folder; repeatable"
    )
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="interleaved rounds (default: 9)")
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--idle-seconds", type=float, default=60.0, metavar="S", help="(default: 60)")
    parser.add_argument("--reloads", type=int, default=1000, metavar="N", help="(default: 1000)")
    parser.add_argument("--json", metavar="FILE", help="also write the tables as JSON; - prints them")
    return parser.parse_args(arguments)


def _run(name: str, args: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="warmd-bench-") as scratch:
        setting = _make_setting(name, args, Path(scratch))
        chosen = args.only or [each for each in BENCHMARKS if name == "tiny" or each not in ON_TINY_ONLY]
        results = []
        for each in chosen:
            print(f"{setting.title}: {each} ...", file=sys.stderr, flush=True)
            results.append(BENCHMARKS[each](setting))
    footer = _describe_environment(setting)
    print(format_table(setting.title, results, footer), flush=True)
    return as_json(setting.title, results, footer)


def _make_setting(name: str, args: argparse.Namespace, scratch: Path) -> Setting:
    if name == "tiny":
        title, model = "tiny llama (2 layers of 64)", make_model(scratch / "model")
    elif name == "smollm":
        from warmd.demo import ensure_demo_model

        title, model = "SmolLM2-135M-Instruct", ensure_demo_model()
        if find_openblas():
            title, model = f"{title} in float32", dequantise(model, scratch / "model")
    else:
        title, model = name, Path(name)
    return Setting(title, model, args.rounds, args.idle_seconds, args.reloads, scratch, find_openblas())


def _describe_environment(setting: Setting) -> list[str]:
    blas = f"{setting.preload} preloaded into servers" if setting.preload else "mlx's own"
    packages = ", ".join(f"{name} {version(name)}" for name in ("mlx", "mlx-lm"))
    return [
        f"environment: {platform.system()} {platform.machine()}, {describe_load()}; Python "
        f"{platform.python_version()}, {packages}; BLAS: {blas}; {setting.rounds} rounds"
    ]


if __name__ == "__main__":
    sys.exit(main())
