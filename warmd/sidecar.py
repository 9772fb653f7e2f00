"""Runs the daemon in a process of its own, beside a server that it reaches over HTTP only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup

from warmd import foreign
from warmd.capture.handler import refuse_capture
from warmd.control.handlers import make_handlers
from warmd.control.place import state_folder
from warmd.control.run import Control, control_of
from warmd.daemon import Daemon
from warmd.engines.http import ChatServer, HttpEngine
from warmd.errors import CannotStartError
from warmd.events import FOREIGN, make_event
from warmd.following import follow_signals
from warmd.logs import Log
from warmd.settings import Settings
from warmd.upkeep import Upkeep

NO_CAPTURE = "a sidecar does not see the server's requests: there is nothing to capture"


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
            The exit code: 0 after a signal, 1 after a fault of ours.

        Raises:
            CannotStartError: It cannot start, which has been logged.
        """
        state = state_folder(self.settings.state)
        try:
            with control_of(state, self.log) as control:
                anyio.run(self._main, control, Upkeep(self.log, state, patience=0))
        except CannotStartError as error:
            self._report_stopped(error.exit_code, str(error))
            error.is_told = True
            raise
        self._report_stopped(self.exit_code, self.stop_reason)
        return self.exit_code

    def _report_stopped(self, exit_code: int, reason: str) -> None:
        level: Any = None if exit_code == 0 else "error"
        self.log.summarise(everything=True)
        self.log(make_event("daemon.stopped", level=level, exit_code=exit_code, reason=reason))

    async def _main(self, control: Control, upkeep: Upkeep) -> None:
        timings = self.settings.sidecar
        server = ChatServer(self.base_url, api_key=self.api_key, timeout=timings.timeout)
        engine = HttpEngine(server, self.model, poll_seconds=timings.poll, emit=self.log)
        daemon = Daemon(engine, self.prompts, self.settings, emit=upkeep.emit, url=self.base_url)
        broken: Exception | None = None
        async with server:
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._follow_signals, daemon, tasks)
                    tasks.start_soon(upkeep.run)
                    # Whoever reads that it is ready may call commands at once.
                    handlers = {**make_handlers(daemon), "capture": refuse_capture(NO_CAPTURE)}
                    await tasks.start(control.serve, handlers)
                    await daemon.run()
            except* Exception as group:  # noqa: BLE001 - whatever it is, the process must not live on half
                broken = group
        if broken is not None:
            self.exit_code, self.stop_reason = 1, "the daemon ended with an unexpected error"
            self.log.write(FOREIGN, "error", logger="warmd", **foreign.describe_exception(broken))

    async def _follow_signals(self, daemon: Daemon, tasks: TaskGroup) -> None:
        self.stop_reason = await follow_signals(daemon, tasks)
        self.log(make_event("daemon.stopping", reason=self.stop_reason))
        tasks.cancel_scope.cancel()
