"""What would end this process waits while the service is down: nobody else would start it again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from warmd.signals import STOP_SIGNALS

HELD = (*STOP_SIGNALS, signal.SIGHUP)
"""Of ctrl-C, of `kill`, and of a terminal that is closed."""
_STDERR = 2
_NOTED = b"warmd: this ends as soon as there is a service again\n"


class Held:
    """The signals that have come meanwhile."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def note(self, number: int, frame: FrameType | None) -> None:
        """As a handler of signals."""
        self.numbers.append(number)
        if len(self.numbers) == 1:
            # Not print, which this may have interrupted; and the terminal may be gone.
            with suppress(OSError):
                os.write(_STDERR, _NOTED)

    def check(self) -> None:
        """A place at which what is being done may be given up.

        Raises:
            KeyboardInterrupt: A signal has come.
        """
        if self.numbers:
            raise KeyboardInterrupt


@contextmanager
def holding_signals() -> Iterator[Held]:
    """Hold the signals that would end this process; the first of them takes effect after the block.

    Only in the main thread. What is ignored stays so, as under nohup.
    """
    held = Held()
    handlers = {number: signal.getsignal(number) for number in HELD}
    before = {
        number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)
    }
    for number in before:
        signal.signal(number, held.note)
    try:
        yield held
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if held.numbers:
            signal.raise_signal(held.numbers[0])
