"""Calls of the file system, which on a network mount may never return."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar, TypeVarTuple

import anyio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Blocking:
    """Makes calls in a thread, one at a time, and waits for each only so long. For one event loop.

    A call that is stuck goes on holding its thread, and the calls after it wait in vain until it returns: so
    however often they are made, there is one such thread. It is none of anyio's: there an abandoned call
    makes room for the next, and those would get stuck one by one.

    Args:
        seconds: How long to wait.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._running: anyio.Event | None = None

    async def run(self, function: Callable[[*Ts], T], *arguments: *Ts) -> T:
        """Call a function; its result.

        Raises:
            TimeoutError: It does not return, or one before it does not. It may still do what it does.
            Exception: What it raised.
        """
        future: Future[T] = Future()
        with anyio.fail_after(self.seconds):
            while self._running is not None:
                await self._running.wait()
            done = self._start(lambda: _settle(future, function, arguments))
            await done.wait()
        return future.result()

    def _start(self, call: Callable[[], None]) -> anyio.Event:
        loop, done = asyncio.get_running_loop(), anyio.Event()

        def finish() -> None:
            self._running = None
            done.set()

        def work() -> None:
            call()
            # The event loop may have ended: there is nobody left to tell.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(finish)

        # Ends with the process, however stuck it is.
        threading.Thread(target=work, name="file system", daemon=True).start()
        self._running = done
        return done


def _settle(future: Future[T], function: Callable[[*Ts], T], arguments: tuple[*Ts]) -> None:
    try:
        future.set_result(function(*arguments))
    except BaseException as error:  # noqa: BLE001 - it is raised where it was asked for
        future.set_exception(error)
