"""`warmd reload`: have the prompts file read now."""

from __future__ import annotations

import argparse
import sys

from warmd.commands.wrong_file import consequence, error_lines
from warmd.control.client import ask
from warmd.text import one_line

DESCRIPTION = """\
Have the daemon read its prompts file now, where it does not notice by itself (some network mounts).
Exit code 0: what the file says now is in force. 1: it is wrong, and the last good one stays. 4: no daemon."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes nothing."""


def run(args: argparse.Namespace) -> int:
    """Ask for it, and tell what came of it."""
    document = ask("reload")
    path = one_line(document["path"])
    if not document["errors"]:
        print(f"{path}: generation {document['accepted']} is in force")
        return 0
    print(*error_lines(document), f"{path}: {consequence(document)}", sep="\n", file=sys.stderr)
    return 1
