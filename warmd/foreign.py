"""What other libraries log, warn and raise, as lines of our log, without a word of any prompt.

mlx-lm's server logs request bodies, malformed input and generated text through the root logger, already
formatted. So a message passes as it is only if it comes from a library that never sees a request. Of every
other record pass its place and the words that stand in the source of the log call, with `…` for what was
filled in. Exceptions appear as type and place, never with their message or local variables.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import traceback
import warnings
from pathlib import Path
from typing import Any

from warmd.events import FOREIGN, Level
from warmd.literal import literal_message
from warmd.logs import Log
from warmd.stray import StrayOutput

TRUSTED = (
    "warmd",
    "watchfiles",
    "filelock",
    "huggingface_hub",
    "transformers.configuration_utils",
    "transformers.modeling_utils",
    "transformers.dynamic_module_utils",
    "transformers.utils.import_utils",
)
"""Loggers that are never handed request content; their children too.

The rest of transformers is not among them, as tokenizers log pieces of text, nor are HTTP clients, as a
request may name the address of an image.
"""

HARMLESS = re.compile(
    r"Prompt Cache: \d+ sequences, [\d.]+ GB"
    r"|- (?:system|user|assistant): \d+ sequences, [\d.]+ GB"
    r"|Prompt processing progress: \d+/\d+"
    r"|(?:Task|Future) exception was never retrieved"
    r"|Task was destroyed but it is pending!"
)
"""Beginnings of messages of mlx-lm's server and asyncio: words and numbers, harmless from anyone."""

NOISE = re.compile(
    r"Prompt Cache: |- \w+: \d+ sequences|Prompt processing progress: |Starting httpd at |HTTP Request: "
)
"""Logged at info for every request or chunk, or again; ours is the better account of it."""

SPEAKS_OF_CODE = (DeprecationWarning, PendingDeprecationWarning, FutureWarning)
"""Warnings about how a program is written, not about what it works on."""


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
            self._log.drop()

    def _write(self, record: logging.LogRecord) -> None:
        message, error = safe_message(record), _exception(record)
        if message is None and error is None and record.levelno < logging.WARNING:
            return
        level = "debug" if message and NOISE.match(message) else _level(record.levelno)
        fields: dict[str, Any] = {"logger": record.name, "message": message}
        if not _is_trusted(record.name):
            fields["at"] = f"{Path(record.pathname).name}:{record.lineno}"
        if error is not None:
            fields |= describe_exception(error)
        self._log.write(FOREIGN, level, **fields)


def safe_message(record: logging.LogRecord) -> str | None:
    """The record's message, or as much of it as cannot hold content; None when that is nothing."""
    if _is_trusted(record.name):
        return record.getMessage()
    harmless = HARMLESS.match(record.msg) if isinstance(record.msg, str) else None
    return harmless.group() if harmless else literal_message(record.pathname, record.lineno)


def _is_trusted(name: str) -> bool:
    return any(name == trusted or name.startswith(f"{trusted}.") for trusted in TRUSTED)


def _exception(record: logging.LogRecord) -> BaseException | None:
    """What the record is about: also `logger.error(error)`."""
    if record.exc_info and record.exc_info[1]:
        return record.exc_info[1]
    return record.msg if isinstance(record.msg, BaseException) else None


def describe_exception(error: BaseException) -> dict[str, Any]:
    """Type and the innermost places of an exception; of a group, those of the first one in it."""
    name = type(error).__name__
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
        name += f" of {type(error).__name__}"
    # Without the source lines, which a full extraction would read from disk.
    frames = traceback.StackSummary.extract(
        traceback.walk_tb(error.__traceback__), lookup_lines=False, capture_locals=False
    )[-5:]
    places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return {"exception": name, "where": places}


def capture(log: Log, level: Level) -> None:
    """Send everything that other code logs, warns or lets escape to a log.

    For a process that is ours (`warmd serve`); an embedded daemon leaves its host's logging alone.
    """
    root = logging.getLogger()
    root.handlers = [ForeignHandler(log)]
    root.setLevel(level.upper())
    adopt_loggers()

    def show_warning(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
    ) -> None:
        _report_warning(log, message, category, filename, lineno)

    warnings.showwarning = show_warning
    sys.excepthook = lambda kind, error, trace: _report(log, error)
    threading.excepthook = lambda args: _report(log, args.exc_value)
    sys.unraisablehook = lambda args: _report(log, args.exc_value)


def capture_stderr(log: Log) -> None:
    """Turn what Python code prints to stderr into lines, unless people are watching it."""
    if not sys.stderr.isatty():
        sys.stderr = StrayOutput(log, sys.stderr)


def adopt_loggers() -> None:
    """Take away the handlers by which libraries print their own loggers, so that records reach ours."""
    for logger in list(logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            logger.handlers = [handler for handler in logger.handlers if not _prints(handler)]
            logger.propagate = True
    # Reports every change as information, also of files that are none of ours.
    logging.getLogger("watchfiles").setLevel(logging.WARNING)


def _prints(handler: logging.Handler) -> bool:
    return isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler)


def _report(log: Log, error: BaseException | None) -> None:
    if error is None or isinstance(error, (KeyboardInterrupt, SystemExit)):
        return
    log.write(FOREIGN, "error", logger="python", message="uncaught exception", **describe_exception(error))


def _report_warning(
    log: Log, message: Warning | str, category: type[Warning], filename: str, lineno: int
) -> None:
    text = str(message) if issubclass(category, SPEAKS_OF_CODE) else literal_message(filename, lineno)
    place = f"{Path(filename).name}:{lineno}"
    log.write(FOREIGN, "warning", logger="py.warnings", message=text, at=place, category=category.__name__)


def _level(number: int) -> Level:
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warning"
    return "info" if number >= logging.INFO else "debug"
