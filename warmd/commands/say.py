"""Says things while something is done that must go on, whoever reads."""

from __future__ import annotations

import os
import sys

from warmd.text import printable


def say(line: str) -> None:
    """Print a line at once, whatever is in the paths it names; what nobody reads, or no disk takes, is lost.

    For commands that change something: `warmd install | head -1` must not end half-way.
    """
    try:
        print(printable(line), flush=True)
    except OSError:
        discard_output()


def discard_output() -> None:
    """Let nothing more go to standard output."""
    # Python writes what is still buffered as it exits, and would complain again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
