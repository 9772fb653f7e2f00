"""JSON lines on stderr: our own events, and every other library's records in the same shape.

Each line is one strict JSON object that begins with `ts`, `level` and `event`. On a terminal the same events
are pretty. A sink that fails (a full disk, a closed pipe) never hurts who logs.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

from warmd.events import Event, Level

LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error")


class Sink:
    """Writes whole lines to a stream from any thread, and outlives the stream's failures.

    Attributes:
        dropped: Lines that could not be written.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self.dropped = 0

    def msg(self, line: str) -> None:
        """Write one line; structlog calls this whatever the level."""
        with self._lock:
            try:
                self._stream.write(line + "\n")
                self._stream.flush()
            except (OSError, ValueError):
                # ValueError: the stream is closed.
                self.dropped += 1

    debug = info = warning = error = msg


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
        renderer = _pretty_renderer() if pretty else structlog.processors.JSONRenderer(_strict_json)
        self._logger = structlog.wrap_logger(
            self.sink,
            processors=[_timestamp, _order_keys, renderer],
            wrapper_class=structlog.BoundLogger,
            cache_logger_on_first_use=True,
        )

    def __call__(self, event: Event) -> None:
        """Write one of our own events."""
        self.write(event.name, event.level, **event.fields)

    def write(self, name: str, level: Level, **fields: Any) -> None:
        """Write an event that need not be in the catalogue."""
        if LEVELS.index(level) >= LEVELS.index(self.level):
            getattr(self._logger, level)(name, **{"level": level, **fields})


def _timestamp(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    return _stamp(logger, method, event)


_stamp = structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts")


def _order_keys(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    first = {key: event.pop(key) for key in ("ts", "level", "event")}
    return {**first, **event}


def _strict_json(value: Any, **_: Any) -> str:
    """JSON without NaN, one line; what JSON cannot hold is named by its type rather than printed."""
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=True, default=_type_name)
    except ValueError:
        return json.dumps(_without_nan(value), allow_nan=False, ensure_ascii=True, default=_type_name)


def _type_name(value: Any) -> str:
    return f"<{type(value).__name__}>"


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and (value != value or value in (1e999, -1e999)) else value


def _pretty_renderer() -> Callable[[WrappedLogger, str, EventDict], str]:
    renderer = structlog.dev.ConsoleRenderer(
        timestamp_key="ts", exception_formatter=structlog.dev.plain_traceback
    )

    def render(logger: WrappedLogger, method: str, event: EventDict) -> str:
        event["ts"] = str(event["ts"])[11:19]
        return str(renderer(logger, method, event))

    return render
