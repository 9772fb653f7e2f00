"""A `warmd serve` of our own: on a free port, with a state folder and a prompts file for itself."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

import anyio
import anyio.to_thread

from warmd.bench.errors import ServerEndedError, ServerRefusedError
from warmd.control.client import ask_at
from warmd.control.place import socket_path
from warmd.errors import UsageError

STOP_SECONDS = 10.0
QUIET_SECONDS = 3.0
"""A file of state takes less to write."""

Json = dict[str, Any]


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class OwnServer:
    """A running server and the events that it has logged.

    Args:
        folder: For its state.
        port: Where it serves.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.events: list[Json] = []
        self._socket = socket_path(Path(os.path.realpath(folder)))
        self._news = anyio.Event()
        self._has_ended = False

    async def read(self, log: IO[str]) -> None:
        """Take in what it logs until it ends."""
        while line := await anyio.to_thread.run_sync(log.readline, abandon_on_cancel=True):
            self._take(line.rstrip("\n"))
        self._has_ended = True
        self._news.set()

    def _take(self, line: str) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            # What is wrong before there is a log is told in plain words.
            event = {"event": "", "reason": line.removeprefix("warmd: ")}
        self.events.append(event if isinstance(event, dict) else {"event": ""})
        self._news.set()

    async def wait_for(self, *names: str, since: int = 0, **fields: Any) -> Json:
        """The first event of one of these names, with these fields, not before the event number `since`.

        Raises:
            ServerEndedError: It ended without one.
        """
        while True:
            for event in self.events[since:]:
                if event.get("event") in names and all(event.get(key) == fields[key] for key in fields):
                    return event
            if self._has_ended:
                reasons = [event["reason"] for event in self.events if event.get("reason")]
                raise ServerEndedError(str(reasons[-1]) if reasons else None)
            self._news = anyio.Event()
            await self._news.wait()

    async def ask(self, command: str, **arguments: Any) -> Any:
        """Ask the daemon; see `warmd.control.client.ask`."""
        return await anyio.to_thread.run_sync(lambda: ask_at(self._socket, command, arguments))

    async def written(self) -> None:
        """Return when no state has been written to disk for a while."""
        is_writing = True
        while is_writing:
            seen = len(self.events)
            with anyio.move_on_after(QUIET_SECONDS) as quiet:
                await self.wait_for("store.written", since=seen)
            is_writing = not quiet.cancelled_caught

    async def settled(self, since: int = 0) -> None:
        """Return when nothing is being warmed or about to be, of what was planned from event `since` on.

        Raises:
            ServerEndedError: It has ended.
        """
        await self.wait_for("plan.made", since=since)
        while True:
            found = await self.ask("status")
            if not any(entry["state"] in ("pending", "warming") for entry in found["entries"]):
                return
            seen = len(self.events)
            with anyio.move_on_after(1):
                await self.wait_for("entry.warmed", "entry.failed", "entry.deferred", since=seen)


@asynccontextmanager
async def own_server(
    model: str, prompts: Path, folder: Path, flags: Sequence[str]
) -> AsyncIterator[OwnServer]:
    """Run a server within the block.

    Args:
        model: A folder or name.
        prompts: Its prompts file.
        folder: For its state.
        flags: More flags for it.

    Raises:
        ServerRefusedError: It does not take them.
    """
    port = free_port()
    command = [sys.executable, "-m", "warmd", "serve", "--model", model, "--prompts", str(prompts)]
    # Without mlx-lm's own prompt cache, so that nothing but the warm prefixes helps a request.
    command += ["--port", str(port), "--prompt-cache-size", "0", *flags]
    variables = {"WARMD_STATE_DIR": str(folder), "WARMD_STORE_PATH": str(folder / "kv")}
    variables |= {"WARMD_LOG_FILE": "", "WARMD_LOG_LEVEL": "info"}
    # A warming that waits for its requests is not put off: `entry.deferred` ends a measurement.
    variables |= {"WARMD_WARM_MAX_PAUSE": "86400"}
    process, log = _start(command, variables)
    server = OwnServer(folder, port)
    error: Exception | None = None
    with log:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.read, log)
            try:
                yield server
            except Exception as caught:  # noqa: BLE001 - raised below: a task group would wrap it
                error = caught
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(_end, process)
                    tasks.cancel_scope.cancel()
    if isinstance(error, ServerEndedError) and process.returncode == UsageError.exit_code:
        raise ServerRefusedError(error.reason)
    if error is not None:
        raise error


def _start(command: Sequence[str], variables: Mapping[str, str]) -> tuple[subprocess.Popen[str], IO[str]]:
    """A process, and what it logs.

    Not one of asyncio's: that waits for its end in one place and looks whether it lives in another, and says
    "Unknown child process" on our terminal where the second comes first.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, **variables},
    )
    assert process.stderr is not None
    return process, process.stderr


def _end(process: subprocess.Popen[str]) -> None:
    """In a worker thread."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
