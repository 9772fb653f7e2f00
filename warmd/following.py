"""Follows signals while a daemon runs: whoever runs one hears of the stop, the daemon of everything else."""

from __future__ import annotations

import signal
import sys

import anyio
from anyio.abc import TaskGroup

from warmd.daemon import Daemon
from warmd.signals import SIGNALS, Terminal, force_next_stop, meaning


async def follow_signals(daemon: Daemon, tasks: TaskGroup) -> str:
    """Do what signals ask for until one asks to stop; returns its name. The next such one forces.

    Args:
        daemon: Reads its file again, or logs how it is.
        tasks: Where it reads.
    """
    terminal = Terminal(sys.stderr)
    with anyio.open_signal_receiver(*SIGNALS) as signals:
        async for number in signals:
            asked = meaning(number, terminal)
            if asked == "stop":
                break
            if asked == "reload":
                tasks.start_soon(daemon.reload)
            else:
                daemon.report()
    force_next_stop()
    return signal.Signals(number).name
