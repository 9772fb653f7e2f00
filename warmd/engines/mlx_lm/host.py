"""Runs mlx-lm's server in this process with the daemon beside it.

Threads: the main thread has the event loop with the daemon and the signals; one thread accepts connections
and each request has its own, as in mlx-lm; one thread, the engine's, owns every mlx array.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import anyio
import anyio.to_thread
from mlx_lm import server

from warmd import foreign
from warmd.control.place import state_folder
from warmd.control.run import Control, control_of
from warmd.engines.mlx_lm.disk_setup import EmitSoon, open_keeper
from warmd.engines.mlx_lm.engine import MlxLmEngine
from warmd.engines.mlx_lm.generator import (
    WarmingResponseGenerator,
    WatchedBatchGenerator,
    WatchedModelProvider,
)
from warmd.engines.mlx_lm.guard import Guard
from warmd.engines.mlx_lm.http import HttpServer, attach_generator, listen, scan_models
from warmd.engines.mlx_lm.hub import hub_reason, missing_model
from warmd.engines.mlx_lm.measure import check_quantising
from warmd.engines.mlx_lm.prompt_cache import WarmPromptCache
from warmd.engines.mlx_lm.ranks import Ranks
from warmd.engines.mlx_lm.room import EngineRoom
from warmd.engines.mlx_lm.shared_guard import SharedGuard
from warmd.engines.mlx_lm.store import Checkpoints, WarmStore
from warmd.engines.model_folder import ModelError, check_adapter, check_model_folder
from warmd.engines.pace import Pace
from warmd.errors import CannotStartError, UsageError
from warmd.events import make_event
from warmd.following import follow_until_stopped
from warmd.logs import Log
from warmd.memory.readings import Limit
from warmd.memory.size import parse_size
from warmd.parser import ServerParser
from warmd.process import DaemonProcess, last_line_if_not_started, log_stopped
from warmd.settings import Settings
from warmd.signals import plain_stops
from warmd.text import http_url
from warmd.web.live import Live
from warmd.web.site import Site

DRAIN_SECONDS = 1.5
"""How long answers may go on after a stop; mlx-lm tells a client within 1 s that its engine has died."""
JOIN_SECONDS = 1.5
"""How long the engine's thread may take to end; a step of a long prefill cannot be interrupted."""


FOLLOW_SECONDS = 4.0
"""How long a rank that is told to stop waits for rank 0 to stop with it."""


class LonelyError(CannotStartError):
    """The other ranks of the job cannot be reached."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"cannot join the other ranks of mlx.launch: {' '.join(str(error).split())}")


class ShardedError(UsageError):
    """Flags that mlx-lm's server has for one process only."""

    def __init__(self) -> None:
        super().__init__(
            "mlx-lm cannot shard adapters and draft models: leave out --adapter-path and --draft-model"
        )


@dataclass(slots=True)
class Host:
    """One run of the server.

    Attributes:
        prompts: The warm-prompts file.
        server_args: Flags for mlx-lm's server.
        settings: Timings and bounds.
        log: Where events go.
        greet: Called with host and port once the address is ours and nothing stands in the way.
    """

    prompts: Path
    server_args: list[str]
    settings: Settings
    log: Log
    greet: Callable[[str, int], None] = lambda host, port: None
    _room: EngineRoom = field(init=False)
    _state: Path = field(init=False)
    _emit_soon: EmitSoon = field(init=False, default_factory=EmitSoon)

    def run(self) -> None:
        """Serve until stopped, and end the process.

        Raises:
            CannotStartError: Something that trying again would not change.
            SystemExit: From the server's own parser.
        """
        try:
            # It waits for the others; where there are none, it takes no time.
            with plain_stops() if "MLX_RANK" in os.environ else contextlib.nullcontext():
                ranks = Ranks.join()
        except RuntimeError as error:
            raise LonelyError(error) from None
        self.be_one_of(ranks)
        with self._seams():
            server.main()

    def be_one_of(self, ranks: Ranks) -> None:
        """Make ready to run the model together with the other ranks, or alone."""
        self._state = state_folder(self.settings.state)
        self._room = self._make_room(ranks)
        if not ranks.leads:
            self.log.take_second_place(rank=ranks.rank)

    def _make_room(self, ranks: Ranks) -> EngineRoom:
        """What the engine's thread works with. Each rank looks at its own memory; all else is rank 0's."""
        memory, warm = self.settings.memory, ranks.share(self.settings.warm)
        checkpoints = Checkpoints(warm.checkpoint_tokens, parse_size(warm.checkpoint_max_bytes))
        pace = Pace(warm.chunk_tokens, warm.chunk_seconds, warm.live_share)
        limit = Limit.parse(memory.limit, memory.reserve)
        if ranks.size > 1:
            store = WarmStore(checkpoints, agree=ranks.agree, on_divergence=self._diverged)
            # A shard is of use only beside the others, and their folders may be of another day.
            return EngineRoom(store, SharedGuard(limit, ranks), pace, ranks=ranks)
        store = WarmStore(checkpoints)
        return EngineRoom(store, Guard(limit), pace, open_keeper(self.settings.store, self._emit_soon))

    @contextlib.contextmanager
    def _seams(self) -> Iterator[None]:
        """Put what is ours, and the flags, where mlx-lm's main looks for them."""
        ours = {
            "ModelProvider": functools.partial(WatchedModelProvider, room=self._room),
            "BatchGenerator": functools.partial(WatchedBatchGenerator, room=self._room),
            "run": self._serve,
            "argparse": SimpleNamespace(**{**vars(argparse), "ArgumentParser": ServerParser}),
            "scan_cache_dir": scan_models,
        }
        before, arguments = {name: getattr(server, name) for name in ours}, sys.argv
        vars(server).update(ours)
        sys.argv = ["warmd serve", *self.server_args]
        try:
            yield
        finally:
            vars(server).update(before)
            sys.argv = arguments

    def _serve(self, host: str, port: int, model_provider: Any) -> None:
        """Takes the place of `mlx_lm.server.run`."""
        # While stderr is still ours alone: it is a mistake on the command line.
        check_quantising(model_provider.cli_args)
        foreign.adopt_loggers()
        foreign.capture_stderr(self.log)
        args = model_provider.cli_args
        check_model_folder(args.model)
        check_model_folder(args.draft_model)
        check_adapter(args.adapter_path)
        if self._room.ranks.size > 1 and (args.adapter_path or args.draft_model):
            raise ShardedError
        if not self._room.ranks.leads:
            self._follow(model_provider)
            return
        with control_of(self._state, self.log) as control:
            http_server = listen(host, port)
            try:
                self.greet(host, port)
                anyio.run(self._main, http_server, model_provider, control)
            finally:
                http_server.server_close()

    def _diverged(self) -> None:
        self._emit_soon(make_event("rank.diverged"))
        # What was freed is to be warmed again.
        self._room.notify()

    def _follow(self, provider: Any) -> None:
        """Be a rank that does what rank 0 says, until that stops or this one is told to and has waited."""
        self.log(make_event("rank.following", rank=self._room.ranks.rank, ranks=self._room.ranks.size))
        size = provider.cli_args.prompt_cache_size
        cache = WarmPromptCache(self._room.store, size, agree=self._room.ranks.agree)
        generator = WarmingResponseGenerator(provider, cache, self._room)
        asked = follow_until_stopped(generator.join_for, FOLLOW_SECONDS)
        death = self._room.death
        reason = str(death) if death is not None else asked or "rank 0 has stopped"
        if death is not None:
            self.log(make_event("engine.died", reason=reason))
        # A rank that goes alone ends the job.
        _end(self.log, 0 if generator.join_for(0) and death is None else 1, reason)

    async def _main(self, http_server: HttpServer, provider: Any, control: Control) -> None:
        cache = WarmPromptCache(
            self._room.store,
            provider.cli_args.prompt_cache_size,
            lambda request: self._room.on_request(request),
            self._room.ranks.agree,
        )
        loop = asyncio.get_running_loop()
        host, port = http_server.server_address[:2]
        url = http_url(str(host), int(port))
        engine = MlxLmEngine(self._room, provider, loop)
        process = DaemonProcess(engine, self.prompts, self.settings, self.log, control, url=url)
        self._emit_soon.follow(loop, process.recent)
        if self._room.keeper is not None:
            self._room.keeper.start(self._room.next_piece)
        if self._room.ranks.size > 1:
            process.recent(make_event("rank.joined", ranks=self._room.ranks.size))
        generator = WarmingResponseGenerator(provider, cache, self._room)
        live = Live(process.daemon.statistics, process.recent)
        site = Site(live.look, lambda: self._problem(process, generator), provider.cli_args.host)
        attach_generator(http_server, generator, site)
        accepting = threading.Thread(target=http_server.serve_forever, name="http", daemon=True)
        accepting.start()
        await process.run()
        if process.death is not None and self._room.is_started:
            await process.report_death(process.death)
        await self._stop(http_server, generator)
        await self._finish(process, generator, provider.cli_args)

    async def _finish(
        self, process: DaemonProcess, generator: WarmingResponseGenerator, args: Any
    ) -> NoReturn:
        """What the end means, once everything has stopped."""
        if process.death is not None and not self._room.is_started:
            raise ModelError(missing_model(args.model, args.draft_model), hub_reason(str(process.death)))
        if self._room.death is not None:
            # mlx.launch stops the ranks that are left: that may come before this one has noticed.
            await process.report_death_before_stop(self._room.death)
        exit_code = process.exit_code
        if self._room.ranks.size > 1 and not generator.join_for(0):
            # The others wait for a step that does not come: only a failure makes mlx.launch end them.
            exit_code = 1
        _end(self.log, exit_code, process.stop_reason)

    def _problem(self, process: DaemonProcess, generator: WarmingResponseGenerator) -> str | None:
        """Why no request can be taken now, in one line, or None. From any thread."""
        if process.problem is not None:
            return process.problem
        if self._room.death is not None or not generator.is_healthy:
            return "the engine has died"
        return None if self._room.is_started else "the model is being loaded"

    async def _stop(self, http_server: HttpServer, generator: WarmingResponseGenerator) -> None:
        """Stop accepting, let answers finish for a moment, then end the engine's thread, if it will."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(http_server.shutdown)
            await anyio.to_thread.run_sync(http_server.drain, DRAIN_SECONDS)
            await anyio.to_thread.run_sync(generator.stop, JOIN_SECONDS)


def _end(log: Log, exit_code: int, reason: str) -> NoReturn:
    log_stopped(log, exit_code, reason)
    # Python would wait for the engine's thread if it is still at work, and what that thread leaves to be
    # destroyed by C++ aborts a process whose interpreter is on its way out. There is nothing to save.
    os._exit(exit_code)


def serve(host: Host) -> None:
    """Run a host, with whose end the process ends: with 0 after a signal, with 1 when the engine died.

    Raises:
        CannotStartError: It cannot start, which has been logged.
    """
    with last_line_if_not_started(host.log):
        host.run()
