"""Starts `warmd serve` and talks to it as a user and an operator would."""

from __future__ import annotations

import itertools
import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import SystemRandom
from typing import Any

from tests import patience

STOP_SECONDS = 5.0
"""A stop takes no longer: promised."""

Json = dict[str, Any]


def _parse(line: str) -> Json:
    try:
        return dict(json.loads(line))
    except ValueError:
        return {"event": "not a JSON line"}


PORTS = range(20_000, 32_000)
"""None that a system gives to who asks for any, as every client does: it stays free until it is used."""

_places = itertools.count(SystemRandom().randrange(len(PORTS)), 7)
"""Workers begin at different ones, and none comes back to one soon. mlx's ring takes the next ones, too."""


def free_port() -> int:
    """A port on which nobody listens."""
    while True:
        port = PORTS[next(_places) % len(PORTS)]
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Server:
    """A running `warmd serve`, its log lines and an HTTP client for it."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        environment: dict[str, str] | None = None,
        module: str = "warmd",
        is_bare: bool = False,
        prefix: Sequence[str] = (),
        cwd: Path | None = None,
        is_sidecar: bool = False,
        is_group: bool = False,
    ) -> None:
        self.port = free_port()
        # Short, for sockets; several servers run at once in some tests.
        self.state = tempfile.TemporaryDirectory(prefix="warmd-test-")
        self.state_folder = Path((environment or {}).get("WARMD_STATE_DIR", self.state.name))
        inherited = {"PYTHONPATH": str(Path(__file__).parents[2])} if is_bare else os.environ
        first = ["sidecar"] if is_sidecar else ["serve", "--port", str(self.port)]
        command = [*prefix, sys.executable, "-m", module, *first, *arguments]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            # What starts other processes is killed with them.
            start_new_session=is_group,
            stdin=subprocess.DEVNULL if is_group else None,
            env={
                **inherited,
                "HF_HUB_OFFLINE": "1",
                "WARMD_STATE_DIR": self.state.name,
                "WARMD_LOG_FILE": "",
                # Tests that are not about the disk must not find what others left there.
                "WARMD_STORE_ENABLED": "false",
                **(environment or {}),
            },
        )
        self.is_group = is_group
        self._lines: list[str] = []
        self._partial = b""
        self._has_ended = False
        self._lock = threading.Lock()
        self._events: queue.Queue[Json | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def lines(self) -> list[str]:
        """All log lines that it has written by now, read or not."""
        self._take()
        return self._lines

    def _read(self) -> None:
        assert self.process.stderr is not None
        while not self._has_ended:
            select.select([self.process.stderr], [], [])
            self._take()

    def _take(self) -> None:
        """Read what there is. From any thread, so that none waits for another one's turn."""
        assert self.process.stderr is not None
        with self._lock:
            while not self._has_ended and select.select([self.process.stderr], [], [], 0)[0]:
                data = os.read(self.process.stderr.fileno(), 65_536)
                *lines, self._partial = (self._partial + data).split(b"\n")
                if not data and self._partial:
                    lines, self._partial = [self._partial], b""
                for line in lines:
                    self._lines.append(line.decode() + "\n")
                    self._events.put(_parse(self._lines[-1]))
                if not data:
                    self._has_ended = True
                    self._events.put(None)

    def wait_for(self, event: str, **fields: Any) -> Json:
        """The next log line with this event and these fields; lines before it are skipped."""
        deadline = time.monotonic() + patience.PATIENCE
        while True:
            try:
                found = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {event} {fields} in:\n{''.join(self.lines)}") from None
            if found is None:
                raise AssertionError(f"ended without {event} {fields}:\n{''.join(self.lines)}")
            if found["event"] == event and all(found.get(key) == value for key, value in fields.items()):
                return found

    def seen(self, event: str) -> list[Json]:
        """All log lines with this event that it has written by now."""
        return [line for line in map(_parse, list(self.lines)) if line["event"] == event]

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        """POST JSON; the status and the parsed answer, or its bytes when it is an error."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=patience.PATIENCE) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def chat(self, messages: list[Json], *, max_tokens: int = 4, **more: Any) -> Json:
        """A chat completion, greedy, as the parsed answer."""
        body = {"messages": messages, "max_tokens": max_tokens, "temperature": 0, **more}
        status, answer = self.post("/v1/chat/completions", body)
        assert status == 200, answer
        return dict(answer)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def stop_promptly(self) -> int:
        """Send SIGTERM and wait for the end as long as is promised; the exit code.

        In seconds that this process, which is never idle meanwhile, has been given itself: on a busy machine
        both get less than there are.
        """
        self.process.send_signal(signal.SIGTERM)
        began = time.process_time()
        while self.process.poll() is None:
            assert time.process_time() - began < STOP_SECONDS
        return self.wait()

    def wait(self) -> int:
        """Wait for the process to end by itself; the exit code."""
        code = self.process.wait(patience.PATIENCE)
        self._reader.join(patience.PATIENCE)
        return code


def cached(answer: Json) -> int:
    """How many prompt tokens an answer says were served from a cache."""
    return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])


def text(answer: Json) -> str:
    """What an answer says."""
    return str(answer["choices"][0]["message"]["content"])


@contextmanager
def serving(
    model: Path | str,
    prompts: Path,
    *arguments: str,
    environment: dict[str, str] | None = None,
    module: str = "warmd",
    is_bare: bool = False,
    prefix: Sequence[str] = (),
    cwd: Path | None = None,
    is_group: bool = False,
) -> Iterator[Server]:
    """A server on a model and a prompts file, killed at the end if a test left it running.

    Args:
        model: Its folder.
        prompts: Its prompts file.
        arguments: More of them.
        environment: Variables besides those of this process.
        module: What is run.
        is_bare: Without those of this process, as launchd starts programs.
        prefix: A command that runs another one.
        cwd: Where it starts.
        is_group: It starts other processes, which end with it.
    """
    server = Server(
        ["--model", str(model), "--prompts", str(prompts), *arguments],
        environment=environment,
        module=module,
        is_bare=is_bare,
        prefix=prefix,
        cwd=cwd,
        is_group=is_group,
    )
    with _ended(server):
        yield server


@contextmanager
def beside(url: str, prompts: Path, *arguments: str, **environment: str) -> Iterator[Server]:
    """A sidecar of a server at an address, killed at the end if a test left it running."""
    arguments = ("--base-url", url, "--prompts", str(prompts), *arguments)
    environment = {"WARMD_SIDECAR_POLL": "0.2", **environment}
    with _ended(Server(arguments, environment=environment, is_sidecar=True)) as sidecar:
        yield sidecar


@contextmanager
def _ended(server: Server) -> Iterator[Server]:
    try:
        yield server
    finally:
        if server.is_group:
            with suppress(ProcessLookupError):
                os.killpg(server.process.pid, signal.SIGKILL)
        if server.process.poll() is None:
            server.process.kill()
        # Nothing is read any more once this returns.
        server.wait()
        assert server.process.stdout is not None
        assert server.process.stderr is not None
        server.process.stdout.close()
        server.process.stderr.close()
        server.state.cleanup()
    # mlx.launch and mlx's ring have lines of their own.
    assert server.is_group or server.seen("not a JSON line") == [], "".join(server.lines)


def write(path: Path, value: Any) -> None:
    """Save a prompts file in place, as the plainest editors do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
