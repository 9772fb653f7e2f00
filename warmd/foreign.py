"""What other libraries log, warn and raise, as lines of our log, without a word of any prompt.

mlx-lm's server logs request bodies, malformed input and generated text through the root logger, already
formatted. So from the server only known harmless messages pass; from libraries that never see a request
every message passes; of all others only the place. Exceptions appear as type and place, never with their
message or local variables.
"""

from __future__ import annotations

import io
import logging
import re
import sys
import threading
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any

from warmd.events import Level
from warmd.logs import Log

EVENT = "foreign.logged"

TRUSTED = (
    "warmd",
    "watchfiles",
    "huggingface_hub",
    "transformers",
    "filelock",
    "urllib3",
    "httpx",
    "py.warnings",
)
"""Loggers of libraries that are not handed request content, or do not log it."""

SERVER_MESSAGES = re.compile(
    r"Prompt Cache: \d+ sequences, [\d.]+ GB"
    r"|- \w+: \d+ sequences, [\d.]+ GB"
    r"|Prompt processing progress: \d+/\d+"
    r"|Received tools but model does not support tool calling\."
    r"|Draft model tokenizer does not match model tokenizer\."
    r"|Invalid Request Body|JSONDecodeError|Failed to parse tool call"
)
"""The beginnings of mlx-lm's own server messages that say something without content."""

NOISE = re.compile(r"Prompt Cache: |- \w+: \d+ sequences|Prompt processing progress: ")
"""Logged at info for every request or chunk; ours is the better account of it."""


class ForeignHandler(logging.Handler):
    """Turns standard library log records into lines of our log."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record; nothing that goes wrong here reaches who logged."""
        try:
            self._write(record)
        except Exception:  # noqa: BLE001 - a log record must never hurt who logs
            self._log.sink.dropped += 1

    def _write(self, record: logging.LogRecord) -> None:
        message = safe_message(record)
        error = record.exc_info[1] if record.exc_info else None
        if message is None and error is None and record.levelno < logging.WARNING:
            return
        level = "debug" if message and NOISE.match(message) else _level(record.levelno)
        fields: dict[str, Any] = {"logger": record.name, "message": message}
        if message is None:
            fields["at"] = f"{Path(record.pathname).name}:{record.lineno}"
        if error is not None:
            fields |= describe_exception(error)
        self._log.write(EVENT, level, **fields)


def safe_message(record: logging.LogRecord) -> str | None:
    """The record's message, or as much of it as cannot hold content; None when that is nothing."""
    if Path(record.pathname).parts[-2:] == ("mlx_lm", "server.py"):
        known = SERVER_MESSAGES.match(str(record.msg))
        return known.group() if known else None
    if record.name.split(".")[0] in TRUSTED or record.name in TRUSTED or record.name.startswith("mlx_lm."):
        return record.getMessage()
    # Of unknown origin: the text before its values were filled in, if they were given separately.
    return str(record.msg) if record.args else None


def describe_exception(error: BaseException) -> dict[str, Any]:
    """Type and the innermost places of an exception."""
    frames = traceback.extract_tb(error.__traceback__)[-5:]
    places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return {"exception": type(error).__name__, "where": places}


def capture(log: Log, level: Level) -> None:
    """Send everything that other code logs, warns, prints to stderr or lets escape to a log.

    For a process that is ours (`warmd serve`); an embedded daemon leaves its host's logging alone.
    """
    logging.captureWarnings(True)
    root = logging.getLogger()
    root.handlers = [ForeignHandler(log)]
    root.setLevel({"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}.get(level, 40))
    adopt_loggers()
    sys.excepthook = lambda kind, error, trace: _report(log, error)
    threading.excepthook = lambda args: _report(log, args.exc_value)
    sys.unraisablehook = lambda args: _report(log, args.exc_value)


def capture_stderr(log: Log) -> None:
    """Turn what Python code prints to stderr into lines, unless people are watching it."""
    if not sys.stderr.isatty():
        sys.stderr = StrayOutput(log)


def adopt_loggers() -> None:
    """Take away the stderr handlers that libraries gave their own loggers, so that records reach ours."""
    for logger in list(logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            logger.handlers = [h for h in logger.handlers if type(h) is not logging.StreamHandler]
            logger.propagate = True
    # Reports every change as information, also of files that are none of ours.
    logging.getLogger("watchfiles").setLevel(logging.WARNING)


class StrayOutput(io.TextIOBase):
    """Stands in for stderr: what is printed there becomes a line that tells how much, but not what."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def write(self, text: str) -> int:
        """Count a print; white space alone is the end of one."""
        if text.strip():
            self._log.write(EVENT, "warning", logger="stderr", message=None, characters=len(text))
        return len(text)

    def writable(self) -> bool:
        """True: it takes text."""
        return True

    def isatty(self) -> bool:
        """False: progress bars and colours have no place here."""
        return False


def _report(log: Log, error: BaseException | None, _: TracebackType | None = None) -> None:
    if error is None or isinstance(error, (KeyboardInterrupt, SystemExit)):
        return
    log.write(EVENT, "error", logger="python", message="uncaught exception", **describe_exception(error))


def _level(number: int) -> Level:
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warning"
    return "info" if number >= logging.INFO else "debug"
