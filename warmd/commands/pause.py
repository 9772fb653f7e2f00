"""`warmd pause`: warm nothing for now."""

from __future__ import annotations

import argparse

from warmd.control.client import ask

DESCRIPTION = """\
Warm nothing until `warmd resume` or the daemon's next start. What is being warmed stops at its next chunk;
what is warm stays so. Exit code 4: no daemon is running."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes nothing."""


def run(args: argparse.Namespace) -> int:
    """Ask for it."""
    found = ask("pause")
    how = "it was paused already" if found.get("was_paused") else "paused"
    print(f"{how}: nothing is warmed until `warmd resume`")
    return 0
