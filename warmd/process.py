"""A process of ours and the daemon in it: what the hosts and the sidecar have in common."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from warmd import foreign
from warmd.control.handlers import make_handlers
from warmd.control.place import state_folder
from warmd.control.run import Control
from warmd.control.server import Handler
from warmd.crash.quarantine import Quarantine, limit_name
from warmd.daemon import Daemon
from warmd.engines.base import Engine, EngineDiedError
from warmd.errors import CannotStartError
from warmd.events import FOREIGN, Level, make_event
from warmd.following import follow_signals
from warmd.logs import Log
from warmd.rates import Rates
from warmd.settings import Settings
from warmd.upkeep import Upkeep
from warmd.web.recent import Recent


class DaemonProcess:
    """One run of the daemon, with a log, a state folder, commands and signals.

    Args:
        engine: Where to warm.
        prompts: The warm-prompts file.
        settings: Timings and bounds.
        log: Where events go.
        control: Lets commands in.
        url: Where the engine serves, as shown to people.
        handlers: Commands that this one answers in its own way.
        patience: See `Upkeep`.
        computes: True when prefilling happens in this process: it may end it, and has a rate.

    Attributes:
        daemon: As it runs.
        recent: Receives every event, also those of the host.
        stop_reason: Why the process ends; empty while it does not.
        exit_code: What it should end with then.
        death: Of the engine, if that is why.
    """

    def __init__(
        self,
        engine: Engine,
        prompts: Path,
        settings: Settings,
        log: Log,
        control: Control,
        *,
        url: str,
        handlers: Mapping[str, Handler] | None = None,
        patience: float = math.inf,
        computes: bool = True,
    ) -> None:
        state = state_folder(settings.state)
        keeps = computes and control.owns_folder
        self._log = log
        self._control = control
        self._upkeep = Upkeep(log, state, patience)
        rates = Rates(state if keeps else None, self._upkeep.emit) if computes else None
        self.recent = Recent(rates or self._upkeep.emit)
        limit = limit_name(settings.memory.limit)
        self._quarantine = Quarantine(state if keeps else None, limit, self.recent)
        self.daemon = Daemon(
            engine,
            prompts,
            settings,
            emit=self.recent,
            url=url,
            quarantine=self._quarantine,
            best_rate=rates.best if rates else lambda model: None,
        )
        self._handlers = {**make_handlers(self.daemon), **(handlers or {})}
        self.stop_reason = ""
        self.exit_code = 0
        self.death: EngineDiedError | None = None

    async def run(self, on_stop: Callable[[], None] = lambda: None) -> None:
        """Run until a signal asks to stop, the engine dies or the daemon breaks.

        Args:
            on_stop: Called when a stop is asked for, before anything else is done about it.
        """
        broken: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._follow_signals, tasks, on_stop)
                # Whoever reads that it is ready may call commands at once.
                await tasks.start(self._control.serve, self._handlers)
                tasks.start_soon(self._upkeep.run)
                try:
                    await self.daemon.run()
                except EngineDiedError as error:
                    self.death = error
                tasks.cancel_scope.cancel()
        except* Exception as group:  # noqa: BLE001 - whatever it is, the process must not live on half
            broken = group
        if broken is not None:
            # A fault of ours. Without the daemon a server would go on as a plain one that nobody notices.
            self.exit_code, self.stop_reason = 1, "the daemon ended with an unexpected error"
            self._log.write(FOREIGN, "error", logger="warmd", **foreign.describe_exception(broken))

    async def _follow_signals(self, tasks: TaskGroup, on_stop: Callable[[], None]) -> None:
        self.stop_reason = await follow_signals(self.daemon, tasks)
        on_stop()
        self._log(make_event("daemon.stopping", pid=os.getpid(), reason=self.stop_reason))
        tasks.cancel_scope.cancel()

    @property
    def problem(self) -> str | None:
        """Why nothing should be asked of this process now, in one line, or None. From any thread."""
        if self.stop_reason:
            return "the server is stopping"
        # Commands are taken, and the log has begun.
        return None if self.daemon.is_running else "the server is starting"

    async def report_death(self, death: EngineDiedError) -> None:
        """The process ends because the engine has died; told once."""
        if self.stop_reason != str(death):
            self.exit_code, self.stop_reason = 1, str(death)
            self._log(make_event("engine.died", reason=self.stop_reason))
            await self._quarantine.engine_died()

    async def report_death_before_stop(self, death: EngineDiedError) -> None:
        """The engine turns out to have died when a stop came: that matters to what the stop broke off."""
        if self._quarantine.broken_off:
            await self.report_death(death)


def log_stopped(log: Log, exit_code: int, reason: str) -> None:
    """The last lines of a process."""
    log.summarise(everything=True)
    level: Level | None = None if exit_code == 0 else "error"
    log(make_event("daemon.stopped", level=level, pid=os.getpid(), exit_code=exit_code, reason=reason))


@contextmanager
def last_line_if_not_started(log: Log) -> Iterator[None]:
    """Log why a process cannot start, where the block says so; nobody need tell it again.

    Raises:
        CannotStartError: That.
    """
    try:
        yield
    except CannotStartError as error:
        log_stopped(log, error.exit_code, str(error))
        error.is_told = True
        raise
