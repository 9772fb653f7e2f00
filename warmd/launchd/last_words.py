"""The last lines that a process left, to show when it has ended."""

from __future__ import annotations

import json
from pathlib import Path

from warmd.launchd.places import STDERR_NAME
from warmd.text import one_line

_BYTES = 8192
_LONGEST = 500


def last_words(log: Path | None, folder: Path, since: float = 0.0) -> list[str]:
    """The reason in the newest of the log files, or what its last line is; nothing if there is none.

    Args:
        log: The log file; None where there is none.
        folder: That of launchd's own copy of what the process prints.
        since: Seconds since the epoch: what was written before is about something else.
    """
    files = [path for path in (log, folder / STDERR_NAME) if path is not None]
    newest = max(files, key=_changed_at)
    if _changed_at(newest) < max(since, 1.0):
        return []
    lines = _tail(newest)
    return [one_line(_readable(lines[-1]))[:_LONGEST]] if lines else []


def _changed_at(path: Path) -> float:
    """In seconds since the epoch; 0 for what is no file, or may not be looked at."""
    try:
        return path.stat().st_mtime if path.is_file() else 0.0
    except OSError:
        return 0.0


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
    except (ValueError, RecursionError):
        return line
    if not isinstance(found, dict) or not (found.get("reason") or found.get("event")):
        return line
    # What is killed leaves no reason. Where it was by then is worth telling, and not as JSON.
    return str(found.get("reason") or f"the last that it logged is {found['event']}")
