"""What signals mean: stop, look at the prompts file, say how things are."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Literal, NoReturn, TextIO

from warmd.events import Emit, make_event

Meaning = Literal["stop", "reload", "report"]

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# macOS's terminals send SIGINFO for ctrl-T; Linux has no such signal.
REPORT_SIGNALS = tuple(getattr(signal, name) for name in ("SIGUSR1", "SIGINFO") if hasattr(signal, name))
TELL_SECONDS = 1.0
"""How long a stop waits for the log."""
SIGNALS = (*STOP_SIGNALS, signal.SIGHUP, *REPORT_SIGNALS)


class Terminal:
    """The terminal that a process was started from, if any.

    Args:
        streams: Standard output and error, as far as there are such: one of them may be redirected. Not
            input, which macOS's `nohup` leaves as it is.
    """

    def __init__(self, *streams: TextIO | None) -> None:
        descriptors = (stream.fileno() for stream in streams if stream is not None and stream.isatty())
        self._descriptor = next(descriptors, None)

    @property
    def is_gone(self) -> bool:
        """True when there was one, and it has been closed."""
        return self._descriptor is not None and not os.isatty(self._descriptor)


def meaning(number: int, terminal: Terminal) -> Meaning:
    """What a signal asks for. SIGHUP also comes when the terminal is closed: then nobody is left to serve."""
    if number in STOP_SIGNALS or (number == signal.SIGHUP and terminal.is_gone):
        return "stop"
    return "reload" if number == signal.SIGHUP else "report"


def hold_signals(emit: Emit | None = None) -> None:
    """Until there is somebody to follow them: a stop stops, and nothing else ends the process.

    The prompts file is going to be read anyway, and there is nothing to report.

    Args:
        emit: Receives `daemon.stopped`, once there is a log for it.
    """

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        # Or a second one would begin anew while this one waits for the log.
        force_next_stop()
        if emit is not None:
            reason = signal.Signals(number).name
            event = make_event("daemon.stopped", pid=os.getpid(), exit_code=0, reason=reason)
            # In a thread: the signal may have interrupted this one while it held the log's lock.
            telling = threading.Thread(target=emit, args=(event,), daemon=True)
            telling.start()
            telling.join(TELL_SECONDS)
        # Not `sys.exit`: the engine's thread may have begun, and Python would wait for it.
        os._exit(0)

    for number in SIGNALS:
        signal.signal(number, stop if number in STOP_SIGNALS else _ignore)


@contextlib.contextmanager
def plain_stops() -> Iterator[None]:
    """While Python cannot run its handlers, as a library waits in C++: a signal to stop ends the process."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def force_next_stop() -> None:
    """From now on a signal to stop ends the process at once, as that signal would."""
    for number in SIGNALS:
        signal.signal(number, _force if number in STOP_SIGNALS else _ignore)


def ignore_next_stop() -> None:
    """The process is ending by itself: a signal to stop asks for no more than that; the next one forces."""

    def stop(number: int, frame: FrameType | None) -> None:
        force_next_stop()

    for number in SIGNALS:
        signal.signal(number, stop if number in STOP_SIGNALS else _ignore)


def _force(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(128 + number)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Not SIG_IGN, which child processes would inherit."""
