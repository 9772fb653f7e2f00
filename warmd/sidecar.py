"""Runs the daemon in a process of its own, beside a server that it reaches over HTTP only."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import anyio

from warmd import foreign
from warmd.config import Settings
from warmd.control.errors import ControlError
from warmd.control.handlers import make_handlers
from warmd.control.place import state_folder
from warmd.control.run import Control, control_of
from warmd.daemon import Daemon
from warmd.engines.http import ChatServer, HttpEngine
from warmd.errors import CannotStartError
from warmd.events import FOREIGN, make_event
from warmd.logs import Log

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(slots=True)
class Sidecar:
    """One run.

    Attributes:
        prompts: The warm-prompts file.
        base_url: The server's address without ``/v1``.
        model: Which of its models; None for the only one.
        api_key: Or None.
        settings: Timings and bounds.
        log: Where events go.
        exit_code: What the process should end with.
    """

    prompts: Path
    base_url: str
    model: str | None
    api_key: str | None
    settings: Settings
    log: Log
    exit_code: int = 0
    stop_reason: str = ""

    def run(self) -> int:
        """Warm until a signal comes.

        Returns:
            The exit code: 0 after a signal, 1 after a fault of ours, 3 when it cannot start.
        """
        for number in STOP_SIGNALS:
            signal.signal(number, _exit_early)
        try:
            with control_of(state_folder(self.settings.state), self.log) as control:
                anyio.run(self._main, control)
        except CannotStartError as error:
            self.exit_code, self.stop_reason = error.exit_code, str(error)
        level: Any = None if self.exit_code == 0 else "error"
        stopped = make_event("daemon.stopped", level=level, exit_code=self.exit_code, reason=self.stop_reason)
        self.log(stopped)
        return self.exit_code

    async def _main(self, control: Control) -> None:
        timings = self.settings.sidecar
        server = ChatServer(self.base_url, api_key=self.api_key, timeout=timings.timeout)
        engine = HttpEngine(server, self.model, poll_seconds=timings.poll, emit=self.log)
        daemon = Daemon(engine, self.prompts, self.settings, emit=self.log, url=self.base_url)
        broken: Exception | None = None
        async with server:
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._stop_on_signal, tasks.cancel_scope.cancel)
                    tasks.start_soon(control.serve, {**make_handlers(daemon), "capture": _cannot_capture})
                    await daemon.run()
            except* Exception as group:  # noqa: BLE001 - whatever it is, the process must not live on half
                broken = group
        if broken is not None:
            self.exit_code, self.stop_reason = 1, "the daemon ended with an unexpected error"
            self.log.write(FOREIGN, "error", logger="warmd", **foreign.describe_exception(broken))

    async def _stop_on_signal(self, stop: Callable[[], None]) -> None:
        with anyio.open_signal_receiver(*STOP_SIGNALS) as signals:
            async for number in signals:
                self.stop_reason = signal.Signals(number).name
                break
        for number in STOP_SIGNALS:
            signal.signal(number, _force)
        self.log(make_event("daemon.stopping", reason=self.stop_reason))
        stop()


async def _cannot_capture(arguments: dict[str, Any]) -> Any:
    """It would wait for ever."""
    raise ControlError("a sidecar does not see the server's requests: there is nothing to capture")


def _exit_early(number: int, frame: FrameType | None) -> NoReturn:
    """A stop before the event loop listens to signals: there is nothing to lose yet."""
    os._exit(0)


def _force(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(128 + number)
