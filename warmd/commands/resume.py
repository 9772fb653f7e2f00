"""`warmd resume`: go on after `warmd pause`."""

from __future__ import annotations

import argparse
from typing import Any

from warmd.control.client import ask
from warmd.parser import add_command


def add_parser(subparsers: Any) -> None:
    """Add the command's parser."""
    add_command(
        subparsers,
        "resume",
        run,
        summary="go on warming",
        description="Go on warming after `warmd pause`. Exit code 4: no daemon is running.",
    )


def run(args: argparse.Namespace) -> int:
    """Ask for it."""
    found = ask("resume")
    print("resumed" if found.get("was_paused", True) else "it was not paused")
    return 0
