"""`warmd schema`: the JSON schema of the warm-prompts file, for editors."""

from __future__ import annotations

import argparse
import json
from typing import Any

from warmd.parser import add_command
from warmd.prompts.json_schema import SCHEMA


def add_parser(subparsers: Any) -> None:
    """Add the command's parser."""
    add_command(
        subparsers,
        "schema",
        run,
        summary="print the JSON schema of the prompts file",
        description="Print the JSON schema of the prompts file, for editors that check as you type.",
    )


def run(args: argparse.Namespace) -> int:
    """Print the schema."""
    print(json.dumps(SCHEMA, indent=2))
    return 0
