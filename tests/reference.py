"""Writes the reference in docs/ from the code: `python -m tests.reference`. A test compares them."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator
from pathlib import Path

from warmd.cli import COMMANDS, make_parser
from warmd.events import FOREIGN, catalogue_table
from warmd.web.metrics import COUNTER, DISK, ENTRY, GENERAL, LIVE, MEMORY, MEMORY_READ

DOCS = Path(__file__).parents[1] / "docs"
NOTE = "<!-- Made by `python -m tests.reference`. Do not edit. -->"


def commands() -> str:
    """Every command with what it says about itself, and its arguments."""
    subparsers = next(
        action for action in make_parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    parts = [_command(name, subparsers.choices[name]) for name in COMMANDS]
    head = (
        "What `warmd COMMAND --help` says. Exit codes: 0 ok, 1 the check failed, 2 usage, 3 cannot start, "
        "4 no daemon."
    )
    return "\n\n".join(["# Commands", NOTE, head, *parts]) + "\n"


def _command(name: str, parser: argparse.ArgumentParser) -> str:
    rows = [
        f"| `{_call(action)}` | {_cell(action.help or '')} |"
        for action in parser._actions
        if action.dest != "help"
    ]
    table = ["| argument | what |", "| --- | --- |", *rows] if rows else ["It takes no arguments."]
    return "\n".join([f"## `warmd {name}`", "", inspect.cleandoc(parser.description or ""), "", *table])


def _call(action: argparse.Action) -> str:
    """As one types it: `-f, --follow`, `--port N`, `FILE`."""
    value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if not action.option_strings:
        return f"[{value}]" if action.nargs in ("?", "*") else value
    names = ", ".join(action.option_strings)
    return names if action.nargs == 0 else f"{names} {value if action.metavar else _choices(action)}"


def _choices(action: argparse.Action) -> str:
    return "{" + ",".join(action.choices or ()) + "}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def events() -> str:
    """The event catalogue."""
    head = "\n".join(
        [
            "One JSON object a line, each with `ts` (ISO 8601, UTC), `level` and `event`, then these fields.",
            "Sizes are bytes, times seconds unless a field's name says otherwise (`ms`). No field ever holds",
            "prompt text.",
        ]
    )
    foreign = (
        f"`{FOREIGN}` is what other code logged, warned, raised or printed (mlx-lm, transformers, …), and "
        "the server's line for each HTTP request (logger `warmd.http`). Its fields vary: `logger`, "
        "`message` (null where it could hold content), `at`, `category`, `exception`, `where`, `characters`."
    )
    return "\n\n".join(["# Events", NOTE, head, catalogue_table(), foreign]) + "\n"


def metrics() -> str:
    """Every metric of `/metrics`."""
    head = "All are in base units. Those of an entry have the label `entry`; what is not known is left out."
    rows = [
        f"| `{name}` | {'counter' if name.endswith(COUNTER) else 'gauge'} | {label} | {meaning} |"
        for name, label, meaning in _measures()
    ]
    table = "\n".join(["| metric | type | label | meaning |", "| --- | --- | --- | --- |", *rows])
    return "\n\n".join(["# Metrics", NOTE, head, table]) + "\n"


def _measures() -> Iterator[tuple[str, str, str]]:
    yield from ((measure.name, "", measure.meaning) for measure in GENERAL)
    yield from ((measure.name, "", measure.meaning) for measure in LIVE)
    yield from ((measure.name, "", measure.meaning) for measure in (*MEMORY, *MEMORY_READ))
    yield from ((measure.name, "", measure.meaning) for measure in DISK)
    yield from ((measure.name, "entry", measure.meaning) for measure in ENTRY)


def metric_names() -> list[str]:
    """The names of all metrics."""
    return [name for name, _, _ in _measures()]


PAGES = {"commands.md": commands, "events.md": events, "metrics.md": metrics}


def main() -> None:
    """Write every page."""
    DOCS.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (DOCS / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
