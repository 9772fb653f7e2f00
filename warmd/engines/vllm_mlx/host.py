"""Runs vllm-mlx's server in this process, with the daemon inside its lifespan.

Everything is on vllm-mlx's event loop, but for the model, which one thread of vllm-mlx owns. vllm-mlx's own
`serve` command parses the flags and loads the model; it ends by calling `uvicorn.run`, where ours takes over.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import anyio
import anyio.to_thread
import uvicorn
from vllm_mlx import cli, server
from vllm_mlx.memory_cache import MemoryAwarePrefixCache

from warmd import foreign
from warmd.capture.handler import refuse_capture
from warmd.control.place import state_folder
from warmd.control.run import Control, control_of
from warmd.engines.model_folder import ModelError, check_model_folder
from warmd.engines.vllm_mlx.address import listen
from warmd.engines.vllm_mlx.app import WithSite, attach_to_lifespan
from warmd.engines.vllm_mlx.engine import VllmMlxEngine
from warmd.engines.vllm_mlx.flags import parse_flags
from warmd.engines.vllm_mlx.saving import saved_whole
from warmd.errors import CannotStartError, UsageError
from warmd.events import FOREIGN
from warmd.logs import Log
from warmd.process import DaemonProcess, last_line_if_not_started, log_stopped
from warmd.settings import Settings
from warmd.text import http_url
from warmd.web.live import Live
from warmd.web.site import Site

LATE = "vllm-mlx had not ended in time, and what it was writing to disk is left out"
NO_CAPTURE = "beside vllm-mlx only the tokens of requests are seen: there is nothing to capture"
DRAIN_SECONDS = 2
"""How long answers may go on after a stop."""
STOP_SECONDS = 4.5
"""How long a stop may take in all: vllm-mlx waits for what it computes, and writes its cache to disk."""
STARTED_SECONDS = 60.0
"""A server that has run for so long has started, also where its model is loaded only when a request comes."""


class NotStartedError(CannotStartError):
    """vllm-mlx's server ended before it served."""

    def __init__(self) -> None:
        super().__init__("vllm-mlx's server did not start; --log-level DEBUG shows what it says")


@dataclass(slots=True)
class Host:
    """One run of the server.

    Attributes:
        prompts: The warm-prompts file.
        server_args: What follows ``vllm-mlx serve``.
        settings: Timings and bounds.
        log: Where events go.
    """

    prompts: Path
    server_args: list[str]
    settings: Settings
    log: Log
    _args: Any = field(init=False, default=None)
    _socket: socket.socket | None = field(init=False, default=None)
    _site: Site | None = field(init=False, default=None)
    _process: DaemonProcess | None = field(init=False, default=None)
    _server: Any = field(init=False, default=None)
    _engine: Any = field(init=False, default=None)
    _is_started: bool = field(init=False, default=False)

    @property
    def _state(self) -> Path:
        return state_folder(self.settings.state)

    def run(self) -> None:
        """Serve until stopped.

        Raises:
            UsageError: vllm-mlx does not take these flags.
            CannotStartError: Something that trying again would not change.
        """
        self._args = parse_flags(self.server_args)
        check_model_folder(self._args.model)
        foreign.adopt_loggers()
        stderr = sys.stderr
        foreign.capture_stderr(self.log)
        if self.log.level != "debug":
            # A dozen lines a request, and without what they fill in they say nothing.
            for name in ("vllm_mlx", "uvicorn"):
                logging.getLogger(name).setLevel(logging.WARNING)
        try:
            self._listen_and_serve()
        except UsageError:
            # It is told on the terminal, as every mistake on a command line is.
            sys.stderr = stderr
            raise

    def _listen_and_serve(self) -> None:
        with (
            control_of(self._state, self.log) as control,
            self._seams(control),
            saved_whole(MemoryAwarePrefixCache),
        ):
            self._socket = listen(self._args.host, self._args.port)
            with contextlib.closing(self._socket):
                self._serve()

    def _serve(self) -> None:
        said = io.StringIO()
        try:
            # Its banner is for people who read terminals, and our stdout stays empty.
            with contextlib.redirect_stdout(said):
                cli.serve_command(self._args)
        except SystemExit:
            errors = re.findall(r"^Error: (.+)", said.getvalue(), re.MULTILINE)
            if errors:
                raise UsageError(errors[-1]) from None
            raise NotStartedError from None
        except Exception as error:
            if self._is_started or isinstance(error, CannotStartError):
                raise
            self.log.write(FOREIGN, "error", logger="vllm_mlx", **foreign.describe_exception(error))
            # No request has come yet: what it says is about files and flags.
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise ModelError(str(self._args.model or self._args.models_config), reason) from None

    @contextlib.contextmanager
    def _seams(self, control: Control) -> Iterator[None]:
        """Put ours where vllm-mlx's command looks for it."""
        before, lifespan = uvicorn.run, server.app.router.lifespan_context
        uvicorn.run = self._run_uvicorn
        attach_to_lifespan(server.app, lambda: self._attached(control))
        try:
            yield
        finally:
            uvicorn.run, server.app.router.lifespan_context = before, lifespan

    def _run_uvicorn(self, app: Any, **options: Any) -> None:
        """Takes the place of `uvicorn.run`: the address is ours already, and it prints nothing."""
        assert self._socket is not None
        left = ("/metrics",) if self._args.enable_metrics else ()
        config = uvicorn.Config(
            WithSite(app, lambda: self._site, left),
            host=self._args.host,
            port=self._args.port,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=DRAIN_SECONDS,
        )
        uvicorn_server = self._server = _Server(config)
        uvicorn_server.run(sockets=[self._socket])
        if not uvicorn_server.started:
            raise NotStartedError

    @contextlib.asynccontextmanager
    async def _attached(self, control: Control) -> AsyncIterator[None]:
        """The daemon, beside the server. When it ends, so does the server."""
        self._is_started = True
        process = self._process = DaemonProcess(
            VllmMlxEngine(self._current, self.settings.warm),
            self.prompts,
            self.settings,
            self.log,
            control,
            url=http_url(self._args.host, self._args.port),
            handlers={"capture": refuse_capture(NO_CAPTURE)},
            patience=STARTED_SECONDS,
        )
        live = Live(process.daemon.statistics, process.recent)
        self._site = Site(live.look, lambda: self._problem(process), self._args.host)
        error: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run, process)
            try:
                yield
            except Exception as caught:  # noqa: BLE001 - raised below: a task group would wrap it
                error = caught
            tasks.cancel_scope.cancel()
        if error is not None:
            raise error

    async def _run(self, process: DaemonProcess) -> None:
        await process.run(self._stop)
        if process.death is not None:
            await process.report_death(process.death)
        self._stop()

    def _stop(self) -> None:
        """As uvicorn does not: its own handling of signals would end the process with the signal."""
        if self._server.should_exit:
            return
        self._server.should_exit = True
        # From a thread: what holds vllm-mlx up may hold this event loop up, too.
        bound = threading.Timer(STOP_SECONDS, self._end, (f"; {LATE}",))
        bound.daemon = True
        bound.start()

    def _end(self, more: str = "") -> NoReturn:
        assert self._process is not None
        log_stopped(self.log, self._process.exit_code, self._process.stop_reason + more)
        # Threads of vllm-mlx that are still at work would hold the process up, or abort it.
        os._exit(self._process.exit_code)

    def _current(self) -> Any:
        """The engine that is loaded now. Of several models one is followed for as long as it stays."""
        if server._model_manager is not None:
            loaded = [item.engine for item in server._model_manager._loaded.values()]
            if self._engine not in loaded:
                self._engine = server._model_manager.get_metrics_engine()
            return self._engine
        if server._residency_manager is not None:
            return server._residency_manager.get_engine(server._default_model_key)
        return server._engine

    def _problem(self, process: DaemonProcess) -> str | None:
        """Why no request can be taken now, in one line, or None. From any thread."""
        if process.problem is not None:
            return process.problem
        engine = self._current()
        # One that is not loaded is loaded by the next request.
        return None if engine is None or engine.is_healthy() else "the engine has died"


class _Server(uvicorn.Server):  # type: ignore[misc] # not installed where types are checked
    """uvicorn's server, which leaves the signals to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing is captured: uvicorn's own would raise the signal again afterwards."""
        yield


def serve(host: Host) -> None:
    """Run a host, with whose end the process ends: with 0 after a signal, with 1 when the engine died.

    Raises:
        UsageError: vllm-mlx does not take these flags.
        CannotStartError: It cannot start, which has been logged.
    """
    with last_line_if_not_started(host.log):
        host.run()
    host._end()
