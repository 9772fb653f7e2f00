"""JSON lines on stderr and in a file: our own events, and other libraries' records in the same shape.

Each line is one strict JSON object that begins with `ts`, `level` and `event`. On a terminal the same events
are pretty. A sink that fails (a full disk, a closed pipe) never hurts who logs: what is lost is counted, and
the count is logged once the sink works again.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import PurePath
from typing import Any, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from warmd.events import CATALOGUE, Event, Level, make_event
from warmd.launched import is_under_launchd
from warmd.logfile import LogFile, open_log_file
from warmd.repeats import Repeats
from warmd.settings import LogSettings, Settings
from warmd.sink import Sink, stream_writer
from warmd.text import printable

LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error")

_ACTED_UPON = frozenset({"exc_info", "stack", "stack_info"})
RESERVED = _ACTED_UPON | {"ts", "level", "event"}
"""Keys that are ours or that structlog acts upon: a field of that name gets an underscore at its end."""

DEEPEST = 8
LONGEST_INTEGER = 64


class Log:
    """Where events go. Call it with an `Event`; `write` takes foreign records.

    Args:
        stream: Usually stderr.
        pretty: Write for people instead of machines.
        level: The lowest level that is written.
        file: Has the same lines as JSON, if there is one.
        stream_level: While the file takes the lines, the lowest level that also goes to the stream.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        pretty: bool = False,
        level: Level = "info",
        file: LogFile | None = None,
        stream_level: Level | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.level: Level = level
        self._stream = _Output(Sink(stream_writer(stream)), pretty=pretty)
        self._stream_level: Level = stream_level or level
        self._file = _Output(Sink(file.write)) if file is not None else None
        self._path = file.path if file is not None else None
        self._file_problem: str | None = None
        self._repeats = Repeats(clock)
        self._own: Mapping[str, Any] = {}

    @property
    def sink(self) -> Sink:
        """Where the stream's lines go."""
        return self._stream.sink

    def __call__(self, event: Event) -> None:
        """Write one of our own events."""
        self.write(event.name, event.level, **event.fields)

    def write(self, name: str, level: Level, /, **fields: Any) -> None:
        """Write an event that need not be in the catalogue."""
        if LEVELS.index(level) < LEVELS.index(self.level):
            return
        self.summarise()
        if self._repeats.is_news(name, level, fields):
            self._put(name, level, fields)

    def summarise(self, *, everything: bool = False) -> None:
        """Tell how often errors have come again, of which enough time has passed; `everything` at the end."""
        for found in self._repeats.take(everything=everything):
            seconds = round(found.seconds, 3)
            event = make_event("log.repeated", repeated=found.name, times=found.times, seconds=seconds)
            self._put(event.name, found.level, {**event.fields, **found.texts})

    def take_second_place(self, **fields: Any) -> None:
        """From now on the file is another process's, and every line says whose it is by these fields."""
        self._file, self._stream_level, self._own = None, self.level, fields

    def drop(self) -> None:
        """Count a line that could not even be made."""
        for output in (self._stream, self._file):
            if output is not None:
                output.sink.drop()

    def _put(self, name: str, level: Level, fields: Mapping[str, Any]) -> None:
        ours = {
            f"{key}_" if key in RESERVED else key: plain(value)
            for key, value in {**self._own, **fields}.items()
        }
        is_in_file = self._file is not None and self._file.put(name, level, ours)
        # What the file does not take is not lost where there is still the stream.
        if not is_in_file or LEVELS.index(level) >= LEVELS.index(self._stream_level):
            self._stream.put(name, level, ours)
        if self._file is not None:
            self._note_file(self._file.sink.problem)

    def _note_file(self, problem: str | None) -> None:
        if problem != self._file_problem:
            self._file_problem = problem
            if problem is not None:
                event = make_event("log.failed", path=str(self._path), reason=problem)
                self._stream.put(event.name, event.level, event.fields)


def open_log(stderr: TextIO, settings: Settings | None = None, *, level: Level | None = None) -> Log:
    """The log of a process that is ours: standard error, pretty on a terminal, and the configured file.

    launchd writes standard error to a file that only grows: there, errors alone go to it while there is the
    other.

    Args:
        stderr: The real one.
        settings: As far as they are known; without them there is no file.
        level: Overrides that of the settings.

    Raises:
        UsageError: The file would be below the home folder, and there is none.
    """
    wanted = settings.log if settings is not None else LogSettings(file="")
    return Log(
        stderr,
        pretty=stderr.isatty(),
        level=level or cast(Level, wanted.level),
        file=open_log_file(wanted),
        stream_level="error" if is_under_launchd(os.environ) else None,
    )


class _Output:
    """One place where lines go, in one form."""

    def __init__(self, sink: Sink, *, pretty: bool = False) -> None:
        self.sink = sink
        self._logger = structlog.wrap_logger(
            sink,
            processors=_pretty_processors() if pretty else _json_processors(),
            wrapper_class=structlog.BoundLogger,
            cache_logger_on_first_use=True,
        )

    def put(self, name: str, level: Level, fields: Mapping[str, Any]) -> bool:
        """Write a line, and what has been lost before it; False when it could not be written."""
        before = self.sink.dropped
        self._write(name, level, fields)
        if before != self.sink.dropped:
            return False
        if lost := self.sink.take_unreported():
            report = make_event("log.dropped", lines=lost)
            self._write(report.name, report.level, report.fields)
        return True

    def _write(self, name: str, level: Level, fields: Mapping[str, Any]) -> None:
        getattr(self._logger, level)(name, level=level, **fields)


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
    render = pretty_line()

    def as_processor(logger: WrappedLogger, method: str, event: EventDict) -> str:
        return render(event)

    return [structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False, key="ts"), as_processor]


def pretty_line(*, is_terminal: bool = True) -> Callable[[MutableMapping[str, Any]], str]:
    """Writes an event, with its `ts`, `level` and `event`, for people; in colour where that is welcome."""
    renderer = structlog.dev.ConsoleRenderer(
        # https://no-color.org
        colors=is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
        timestamp_key="ts",
        sort_keys=False,
        pad_event_to=18,
        exception_formatter=structlog.dev.plain_traceback,
    )

    def render(event: MutableMapping[str, Any]) -> str:
        errors = event.pop("errors") if isinstance(event.get("errors"), list) else []
        kind = CATALOGUE.get(event["event"])
        for name in kind.unsaid if kind is not None else ():
            if event.get(name) == 0:
                del event[name]
        # structlog would print a field named exception below the line, as a traceback.
        event["raised"] = event.pop("exception", None)
        known = {_key(key): _printable(value) for key, value in event.items() if value is not None}
        line = str(renderer(None, "", known)).rstrip()
        return "\n".join([line, *(f"    {_error_line(error)}" for error in errors)])

    return render


def _key(name: str) -> str:
    """A field's name; structlog acts upon some, and a line of the file may have any."""
    return f"{name}_" if name in _ACTED_UPON else printable(name)


def _error_line(error: Any) -> str:
    """An error of the prompts file as compilers print them: line:column, JSON path, message."""
    if not isinstance(error, dict):
        return str(_printable(str(error)))
    at = ":".join(str(error[key]) for key in ("line", "column") if error.get(key) is not None)
    # Without a position $ is the file as such, which the line above names.
    path = error.get("path") if at or error.get("path") != "$" else None
    parts = (at, path, error.get("message"))
    return str(_printable("  ".join(str(part) for part in parts if part)))


def _printable(value: Any) -> Any:
    """No escape sequence, in an entry's name for example, may reach the terminal."""
    return printable(value) if isinstance(value, str) else value
