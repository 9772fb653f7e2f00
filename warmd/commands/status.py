"""`warmd status`: what the daemon keeps warm, once or all the time."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from warmd.control.client import ask
from warmd.control.errors import NoDaemonError

DESCRIPTION = """\
Show what the running daemon keeps warm: each entry's state, the memory, the progress of the warming that is
going on, and prompts that would be worth an entry. Exit code 4: no daemon is running."""
PERIOD = 1.0
WIDE = 4000
"""Columns that no report needs: a line of a file is not folded."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what it takes."""
    parser.add_argument("--json", action="store_true", help="print JSON (with --watch: one line a second)")
    parser.add_argument("--watch", action="store_true", help="refresh each second until ^C")


def run(args: argparse.Namespace) -> int:
    """Ask and show."""
    if not args.watch:
        found = ask("status")
        print(json.dumps(found, indent=2) if args.json else _text(found))
        return 0
    try:
        _watch(as_json=args.json)
    except KeyboardInterrupt:
        # That is how a watch ends.
        return 0
    return 0


def _watch(*, as_json: bool) -> None:
    first = ask("status")
    if not as_json and sys.stdout is not None and sys.stdout.isatty():
        _watch_on_terminal(first)
        return
    for found in _each_second(first):
        print(json.dumps(found) if as_json else f"{_text(found)}\n", flush=True)


def _each_second(first: Any) -> Iterator[Any]:
    yield first
    while True:
        time.sleep(PERIOD)
        yield ask("status")


def _watch_on_terminal(found: Any) -> None:
    # Imported here: the other ways do without, and it takes as long as all the rest.
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from warmd.commands.status_report import report

    with Live(report(found, time.time()), console=Console(), screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(PERIOD)
            try:
                shown = report(ask("status"), time.time())
            except NoDaemonError as error:
                # It may be restarting, and whoever watches wants to see that.
                shown = Text(str(error))
            live.update(shown, refresh=True)


def _text(found: Any) -> str:
    """The report for this output: with colours and folded for a terminal, plain lines for anything else."""
    from rich.console import Console

    from warmd.commands.status_report import report

    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    console = Console() if is_terminal else Console(width=WIDE, color_system=None)
    with console.capture() as capture:
        console.print(report(found, time.time()))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
