"""Prints a request for the first entry of a warm-prompts file: ``python -m warmd.demo FILE TEXT``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from warmd.demo.prompts import QUESTION, demo_request
from warmd.errors import WarmdError


def main() -> int:
    """Print the request as JSON, ready for ``curl -d @-``."""
    parser = argparse.ArgumentParser(prog="python -m warmd.demo", description=__doc__)
    parser.add_argument("file", type=Path, help="the warm-prompts file")
    parser.add_argument("text", nargs="?", default=QUESTION, help="what the user says")
    args = parser.parse_args()
    try:
        print(json.dumps(demo_request(args.file, args.text)))
    except WarmdError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
