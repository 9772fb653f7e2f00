"""The last lines that a process left, to show when it has ended."""

from __future__ import annotations

import json
from pathlib import Path

from warmd.launchd.places import STDERR_NAME

_BYTES = 8192


def last_words(log: Path | None, folder: Path) -> list[str]:
    """The reason in the newest of the log files, or its last line; nothing if there is none.

    Args:
        log: The log file; None where there is none.
        folder: That of launchd's own copy of what the process prints.
    """
    files = [path for path in (log, folder / STDERR_NAME) if path is not None and path.is_file()]
    newest = max(files, key=lambda path: path.stat().st_mtime, default=None)
    if newest is None:
        return []
    lines = _tail(newest)
    return [_readable(lines[-1])] if lines else []


def _tail(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _BYTES))
            return [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        return []


def _readable(line: str) -> str:
    try:
        found = json.loads(line)
    except ValueError:
        return line
    return str(found["reason"]) if isinstance(found, dict) and found.get("reason") else line
