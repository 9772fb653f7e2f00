"""Follows signals while a daemon runs: whoever runs one hears of the stop, the daemon of everything else."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

import anyio
from anyio.abc import TaskGroup

from warmd.daemon import Daemon
from warmd.signals import SIGNALS, STOP_SIGNALS, Terminal, force_next_stop, ignore_next_stop, meaning


async def follow_signals(daemon: Daemon, tasks: TaskGroup) -> str:
    """Do what signals ask for until one asks to stop; returns its name. The next such one forces.

    Args:
        daemon: Reads its file again, or logs how it is.
        tasks: Where it reads.
    """
    terminal, is_asked = Terminal(sys.stdout, sys.stderr), False
    try:
        with anyio.open_signal_receiver(*SIGNALS) as signals:
            async for number in signals:
                asked = meaning(number, terminal)
                if asked == "stop":
                    is_asked = True
                    break
                if asked == "reload":
                    tasks.start_soon(daemon.reload)
                else:
                    daemon.report()
    finally:
        if is_asked:
            force_next_stop()
        else:
            # The process ends for another reason, and has a last line to write.
            ignore_next_stop()
    return signal.Signals(number).name


def follow_until_stopped(wait: Callable[[float], bool], patience: float) -> str | None:
    """Wait for something to end by itself. A signal to stop leaves it so many seconds; the next one forces.

    Args:
        wait: Waits for at most so many seconds; True once it has ended.
        patience: Seconds.

    Returns:
        The name of the signal, if there was one.
    """
    asked: list[tuple[int, float]] = []

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append((number, time.monotonic() + patience))
        force_next_stop()

    for number in STOP_SIGNALS:
        signal.signal(number, ask)
    while not wait(0.2):
        if asked and time.monotonic() > asked[0][1]:
            break
    return signal.Signals(asked[0][0]).name if asked else None
