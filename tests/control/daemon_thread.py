"""A daemon on a scripted engine, with its control socket, in a thread of its own: for commands to talk to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.abc
from anyio.from_thread import BlockingPortal, start_blocking_portal

from tests.test_daemon import Running
from warmd.control.handlers import make_handlers
from warmd.control.place import socket_path
from warmd.control.run import control_of
from warmd.testing import FakeEngine

T = TypeVar("T")


class LiveDaemon:
    """A daemon that runs in another thread."""

    def __init__(self, running: Running, portal: BlockingPortal) -> None:
        self.running = running
        self._portal = portal

    @property
    def engine(self) -> FakeEngine:
        """Its engine; for the daemon's thread."""
        return self.running.engine

    def do(self, function: Callable[[], T]) -> T:
        """Call a function in the daemon's thread."""
        return self._portal.call(function)

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds there."""
        self._portal.call(self.running.until, holds)


@contextmanager
def live_daemon(state: Path, prompts: Path, *entries: object) -> Iterator[LiveDaemon]:
    """Run one on a state folder; commands reach it."""
    with start_blocking_portal() as portal:
        running = portal.call(Running, prompts, FakeEngine(), 1)
        running.save(*entries)
        future, _ = portal.start_task(_run, state, running)
        try:
            portal.call(running.until, socket_path(state).exists)
            yield LiveDaemon(running, portal)
        finally:
            future.cancel()


async def _run(
    state: Path, running: Running, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
) -> None:
    with control_of(state, running.events.append) as control:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.daemon.run)
            tasks.start_soon(control.serve, make_handlers(running.daemon))
            task_status.started()
