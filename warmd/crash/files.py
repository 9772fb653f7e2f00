"""Small JSON files in the state folder: replaced whole, private, and harmless when they are broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from warmd.capture.files import PRIVATE, write_atomically

LARGEST = 1 << 20


def read_json(path: Path) -> Any:
    """What is in a file; None where there is none, or nothing that can be read as JSON."""
    try:
        with path.open("rb") as file:
            return json.loads(file.read(LARGEST))
    except (OSError, ValueError, RecursionError):
        return None


def write_json(path: Path, value: Any) -> None:
    """Replace a file; it is on disk once this returns.

    Raises:
        OSError: It cannot be written; it is as it was.
    """
    write_atomically(path, json.dumps(value).encode("ascii") + b"\n", PRIVATE)
