"""Writes whole lines to a stream, come what may."""

from __future__ import annotations

import io
import select
import threading
from collections.abc import Callable
from functools import partial
from typing import TextIO

PATIENCE = 0.1
"""Seconds to wait for a reader that is slow; one that has stopped must not stop us."""


class TornError(OSError):
    """Only a part of a line has been written."""


Write = Callable[[str, float], None]
"""Writes text and waits for at most so many seconds; raises OSError or ValueError when it cannot."""


class Sink:
    """Writes whole lines from any thread, and outlives the failures of what takes them.

    Args:
        write: See `stream_writer`.

    Attributes:
        dropped: Lines that could not be written.
        problem: Why the last one could not; None when it was written.
    """

    def __init__(self, write: Write) -> None:
        self._write = write
        self.problem: str | None = None
        self._lock = threading.Lock()
        self._unreported = 0
        self._is_torn = False
        self._patience = PATIENCE
        self.dropped = 0

    def msg(self, line: str) -> None:
        """Write one line; structlog calls this whatever the level."""
        with self._lock:
            try:
                # After half a line, begin a new one.
                self._write(("\n" if self._is_torn else "") + line + "\n", self._patience)
                self._is_torn, self._patience, self.problem = False, PATIENCE, None
            except (OSError, ValueError) as error:
                # Once nobody reads, no further line waits for that to change.
                self._patience = 0.0
                # ValueError: the stream is closed.
                self._is_torn = self._is_torn or isinstance(error, TornError)
                self.problem = getattr(error, "strerror", None) or str(error)
                self.dropped += 1
                self._unreported += 1

    debug = info = warning = error = msg

    def drop(self) -> None:
        """Count a line that could not even be made."""
        with self._lock:
            self.dropped += 1
            self._unreported += 1

    def take_unreported(self) -> int:
        """How many lines were dropped since this was last asked."""
        with self._lock:
            count, self._unreported = self._unreported, 0
            return count


def stream_writer(stream: TextIO) -> Write:
    """How to write to a stream at once, and so that a failure leaves nothing behind in a buffer.

    What stays in the buffer of a full disk or a broken pipe would be tried again at the exit, and then the
    interpreter would end with status 120 whatever ours was.
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    buffer = getattr(stream, "buffer", None)
    # With PYTHONUNBUFFERED there is no buffer, and the raw file stands in its place.
    raw = buffer if isinstance(buffer, io.RawIOBase) else getattr(buffer, "raw", None)
    if isinstance(raw, io.RawIOBase):
        return partial(_write_raw, raw, encoding)

    def write_text(text: str, patience: float) -> None:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()

    return write_text


def _write_raw(raw: io.RawIOBase, encoding: str, text: str, patience: float) -> None:
    data, done = text.encode(encoding, "backslashreplace"), 0
    try:
        while done < len(data):
            # What poll calls writable takes this much without blocking.
            done += _write_some(raw, data[done : done + select.PIPE_BUF], patience)
    except OSError as error:
        raise (TornError(*error.args) if done else error) from None


def _is_writable(raw: io.RawIOBase, patience: float) -> bool:
    """False when a write would wait: a pipe whose reader does not read, a terminal that is held."""
    try:
        return bool(select.select([], [raw], [], patience)[1])
    except (OSError, ValueError):
        # It has no descriptor of its own: only trying will tell.
        return True


def _write_some(raw: io.RawIOBase, data: bytes, patience: float) -> int:
    if not _is_writable(raw, patience):
        raise BlockingIOError("nobody reads")
    written = raw.write(data)
    if written is None:
        raise BlockingIOError("the stream takes nothing now")
    return written
