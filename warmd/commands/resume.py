"""`warmd resume`: go on after `warmd pause`."""

from __future__ import annotations

import argparse

from warmd.control.client import ask

DESCRIPTION = "Go on warming after `warmd pause`. Exit code 4: no daemon is running."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes nothing."""


def run(args: argparse.Namespace) -> int:
    """Ask for it."""
    found = ask("resume")
    print("resumed" if found.get("was_paused", True) else "it was not paused")
    return 0
