"""Runs the daemon in a process of its own, beside a server that it reaches over HTTP only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import anyio

from warmd.capture.handler import refuse_capture
from warmd.control.place import state_folder
from warmd.control.run import Control, control_of
from warmd.engines.http import ChatServer, HttpEngine
from warmd.logs import Log
from warmd.process import DaemonProcess, last_line_if_not_started, log_stopped
from warmd.settings import Settings

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
    """

    prompts: Path
    base_url: str
    model: str | None
    api_key: str | None
    settings: Settings
    log: Log

    def run(self) -> int:
        """Warm until a signal comes.

        Returns:
            The exit code: 0 after a signal, 1 after a fault of ours.

        Raises:
            CannotStartError: It cannot start, which has been logged.
        """
        with (
            last_line_if_not_started(self.log),
            control_of(state_folder(self.settings.state), self.log) as control,
        ):
            return anyio.run(self._main, control)

    async def _main(self, control: Control) -> int:
        timings = self.settings.sidecar
        server = ChatServer(self.base_url, api_key=self.api_key, timeout=timings.timeout)
        engine = HttpEngine(server, self.model, poll_seconds=timings.poll, emit=self.log)
        process = DaemonProcess(
            engine,
            self.prompts,
            self.settings,
            self.log,
            control,
            url=self.base_url,
            handlers={"capture": refuse_capture(NO_CAPTURE)},
            # It has started once it looks at its file, whether or not the server is there.
            patience=0,
            computes=False,
        )
        async with server:
            await process.run()
        log_stopped(self.log, process.exit_code, process.stop_reason)
        return process.exit_code
