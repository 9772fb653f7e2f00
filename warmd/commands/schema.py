"""`warmd schema`: the JSON schema of the warm-prompts file, for editors."""

from __future__ import annotations

import argparse
import json
from typing import Any

from warmd.prompts.json_schema import SCHEMA


def add_parser(subparsers: Any) -> None:
    """Add the command's parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "schema",
        help="print the JSON schema of the prompts file",
        description="Print the JSON schema of the prompts file, for editors that check as you type.",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the schema."""
    print(json.dumps(SCHEMA, indent=2))
    return 0
