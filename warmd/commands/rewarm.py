"""`warmd rewarm`: free entries and warm them again."""

from __future__ import annotations

import argparse

from warmd.control.client import ask
from warmd.text import one_line

DESCRIPTION = """\
Free entries and warm them again, whatever their state; what other entries begin with too is kept.
Exit code 4: no daemon is running."""
SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what it takes."""
    parser.add_argument("names", metavar="NAME", nargs="*", help="which entries (default: all)")


def run(args: argparse.Namespace) -> int:
    """Ask for it."""
    found = ask("rewarm", names=args.names)
    names = found["entries"]
    shown = ", ".join(map(one_line, names[:SHOWN])) + (
        f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    )
    print(f"to be warmed again: {shown}" if names else "there are no entries")
    # As a daemon of another version may not say.
    if names and found.get("paused"):
        print("paused: nothing is warmed until `warmd resume`")
    return 0
