"""`warmd resume`: go on after `warmd pause`."""

from __future__ import annotations

import argparse
from typing import Any

from warmd.control.client import ask


def add_parser(subparsers: Any) -> None:
    """Add the command's parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "resume",
        help="go on warming",
        description="Go on warming after `warmd pause`. Exit code 4: no daemon is running.",
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Ask for it."""
    ask("resume")
    print("resumed")
    return 0
