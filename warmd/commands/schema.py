"""`warmd schema`: the JSON schema of the warm-prompts file, for editors."""

from __future__ import annotations

import argparse
import json

from warmd.prompts.json_schema import SCHEMA

DESCRIPTION = "Print the JSON schema of the prompts file, for editors that check as you type."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes nothing."""


def run(args: argparse.Namespace) -> int:
    """Print the schema."""
    print(json.dumps(SCHEMA, indent=2))
    return 0
