"""JSON lines on stderr: our own events, and every other library's records in the same shape.

Each line is one strict JSON object that begins with `ts`, `level` and `event`. On a terminal the same events
are pretty. A sink that fails (a full disk, a closed pipe) never hurts who logs: what is lost is counted, and
the count is logged once the sink works again.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import PurePath
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from warmd.events import Event, Level, make_event
from warmd.sink import Sink

LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error")

RESERVED = frozenset({"ts", "level", "event", "exc_info", "stack", "stack_info"})
"""Keys that are ours or that structlog acts upon: a field of that name gets an underscore at its end."""

DEEPEST = 8
LONGEST_INTEGER = 64


class Log:
    """Where events go. Call it with an `Event`; `write` takes foreign records.

    Args:
        stream: Usually stderr.
        pretty: Write for people instead of machines.
        level: The lowest level that is written.
    """

    def __init__(self, stream: TextIO, *, pretty: bool = False, level: Level = "info") -> None:
        self.sink = Sink(stream)
        self.level: Level = level
        self._logger = structlog.wrap_logger(
            self.sink,
            processors=_pretty_processors() if pretty else _json_processors(),
            wrapper_class=structlog.BoundLogger,
            cache_logger_on_first_use=True,
        )

    def __call__(self, event: Event) -> None:
        """Write one of our own events."""
        self.write(event.name, event.level, **event.fields)

    def write(self, name: str, level: Level, /, **fields: Any) -> None:
        """Write an event that need not be in the catalogue."""
        if LEVELS.index(level) < LEVELS.index(self.level):
            return
        before = self.sink.dropped
        self._put(name, level, fields)
        if before == self.sink.dropped and (lost := self.sink.take_unreported()):
            report = make_event("log.dropped", lines=lost)
            self._put(report.name, report.level, report.fields)

    def _put(self, name: str, level: Level, fields: Any) -> None:
        ours = {f"{key}_" if key in RESERVED else key: plain(value) for key, value in fields.items()}
        getattr(self._logger, level)(name, level=level, **ours)


def plain(value: Any, depth: int = 0) -> Any:
    """A value as strict JSON can hold it; what it cannot hold is named by its type rather than printed."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (str, PurePath)):
        # A lone surrogate (from a file name that is not UTF-8) is not valid JSON.
        return str(value).encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, int) and value.bit_length() < LONGEST_INTEGER:
        return int(value)
    if isinstance(value, dict) and depth < DEEPEST:
        return {str(plain(key)): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and depth < DEEPEST:
        return [plain(item, depth + 1) for item in value]
    return f"<{type(value).__name__}>"


def _json_processors() -> list[Processor]:
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts")
    return [stamp, _order_keys, structlog.processors.JSONRenderer(_dump)]


def _dump(value: Any, **_: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=True)


def _order_keys(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    first = {key: event.pop(key) for key in ("ts", "level", "event")}
    return {**first, **event}


def _pretty_processors() -> list[Processor]:
    renderer = structlog.dev.ConsoleRenderer(
        # https://no-color.org
        colors=not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
        timestamp_key="ts",
        sort_keys=False,
        pad_event_to=18,
        exception_formatter=structlog.dev.plain_traceback,
    )

    def render(logger: WrappedLogger, method: str, event: EventDict) -> str:
        errors = event.pop("errors", None) or []
        # structlog would print a field named exception below the line, as a traceback.
        event["raised"] = event.pop("exception", None)
        known = {key: _printable(value) for key, value in event.items() if value is not None}
        line = str(renderer(logger, method, known)).rstrip()
        return "\n".join([line, *(f"    {_error_line(error)}" for error in errors)])

    return [structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False, key="ts"), render]


def _error_line(error: Any) -> str:
    """An error of the prompts file as compilers print them: line:column, JSON path, message."""
    if not isinstance(error, dict):
        return str(_printable(str(error)))
    at = ":".join(str(error[key]) for key in ("line", "column") if error.get(key) is not None)
    parts = (at, error.get("path"), error.get("message"))
    return str(_printable("  ".join(str(part) for part in parts if part)))


def _printable(value: Any) -> Any:
    """No escape sequence, in an entry's name for example, may reach the terminal."""
    if not isinstance(value, str):
        return value
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in value)
