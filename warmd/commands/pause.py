"""`warmd pause`: warm nothing for now."""

from __future__ import annotations

import argparse
from typing import Any

from warmd.control.client import ask
from warmd.parser import add_command

DESCRIPTION = """\
Warm nothing until `warmd resume` or the daemon's next start. What is being warmed stops at its next chunk;
what is warm stays so. Exit code 4: no daemon is running."""


def add_parser(subparsers: Any) -> None:
    """Add the command's parser."""
    add_command(subparsers, "pause", run, summary="warm nothing for now", description=DESCRIPTION)


def run(args: argparse.Namespace) -> int:
    """Ask for it."""
    found = ask("pause")
    how = "it was paused already" if found.get("was_paused") else "paused"
    print(f"{how}: nothing is warmed until `warmd resume`")
    return 0
