"""Is the server there? Asked over HTTP, from outside."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from warmd.launchd.flags import flag_value, port_of
from warmd.launchd.launchctl import JobState
from warmd.launchd.service import GONE_LOOKS
from warmd.text import http_url, one_line

HOST, PORT = "127.0.0.1", 8080
"""mlx_lm.server's defaults."""
ANSWER_SECONDS = 5.0
"""For a whole answer, however slowly it comes."""
LONGEST_ANSWER = 1 << 20
LONGEST_REASON = 300
PAUSE = 0.5
OLDER = "it does not tell its pid, being of an older version"

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server listens, as one can call it."""

    host: str = HOST
    port: int = PORT

    @classmethod
    def of(cls, arguments: Sequence[str]) -> Address:
        """From the command line of `warmd serve`."""
        host = flag_value(arguments, "--host") or HOST
        port = port_of(flag_value(arguments, "--port") or "")
        return cls(_EVERYWHERE.get(host, host), PORT if port is None else port)

    @classmethod
    def of_url(cls, url: str) -> Address:
        """From what a running daemon says."""
        found = urlsplit(url)
        host = found.hostname or HOST
        return cls(_EVERYWHERE.get(host, host), found.port or PORT)

    @property
    def url(self) -> str:
        """Without a path."""
        return http_url(self.host, self.port)

    def is_taken(self) -> bool:
        """True when somebody listens there."""
        try:
            with socket.create_connection((self.host, self.port), timeout=ANSWER_SECONDS):
                return True
        # ValueError: what cannot be the name of a host.
        except (OSError, ValueError):
            return False


@dataclass(frozen=True, slots=True)
class Readiness:
    """What `/readyz` says.

    Attributes:
        is_ready: Requests are taken.
        reason: Why not, in one line; None when nobody answers.
        pid: Of the process that answers; None when it does not say.
    """

    is_ready: bool
    reason: str | None = None
    pid: int | None = None


def ask_ready(address: Address, seconds: float = ANSWER_SECONDS) -> Readiness | None:
    """Ask `/readyz`; None when what answers in so many seconds, if anything does, is no warmd."""
    try:
        # Not urllib: that asks the shell's proxy, and goes where a redirection leads.
        connection = http.client.HTTPConnection(address.host, address.port, timeout=seconds)
        with contextlib.closing(connection):
            connection.connect()
            with _ending(connection.sock, seconds):
                connection.request("GET", "/readyz", headers={"Connection": "close"})
                answer = connection.getresponse()
                return _parse(answer.read(LONGEST_ANSWER), answer.status)
    except (OSError, ValueError, http.client.HTTPException):
        return None


@contextlib.contextmanager
def _ending(connection: socket.socket, seconds: float) -> Iterator[None]:
    """Hang up when the time is up: a socket's own timeout is for each piece, and pieces may drip."""

    def hang_up() -> None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, hang_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _parse(body: bytes, status: int) -> Readiness | None:
    try:
        found: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or "warm" not in found:
        return None
    reason, pid = found.get("reason"), found.get("pid")
    return Readiness(
        status == 200,
        one_line(str(reason))[:LONGEST_REASON] if reason is not None else None,
        pid if type(pid) is int else None,
    )


def is_anothers(address: Address, pid: int | None) -> bool:
    """True when somebody else listens there than one process, as far as that can be told from outside.

    Args:
        address: Where.
        pid: The process that may; None when there is none.
    """
    readiness = ask_ready(address)
    if readiness is not None and readiness.pid is not None:
        return readiness.pid != pid
    return pid is None and address.is_taken()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How waiting ended.

    Attributes:
        state: `ready`; `loading`: it runs, and time is up; `failed`: its process has ended; `taken`: it runs,
            time is up, and another process has the port in its place, as far as one can tell.
        detail: Why, or who.
    """

    state: Literal["ready", "loading", "failed", "taken"]
    detail: str | None = None


def wait_until_ready(
    address: Address,
    find: Callable[[], JobState | None],
    seconds: float,
    *,
    runs_before: int = 0,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Wait for the job's own process to take requests, for it to fail, or for the time to be up.

    Args:
        address: Where it listens; nobody else did when the job was started.
        find: How the job is in launchd; None when it is not loaded.
        seconds: How long to wait.
        runs_before: How often the job had been started by then: the end of those is not what is waited for.
        sleep: Waits for so many seconds.
        clock: Seconds, of whatever beginning.
    """
    deadline = clock() + seconds
    gone = 0
    while True:
        found, job = ask_ready(address), find()
        gone = gone + 1 if job is None else 0
        if gone == GONE_LOOKS:
            return Outcome("failed", "launchd has dropped the job")
        if job is not None and job.has_ended and job.runs > runs_before:
            return Outcome("failed", job.last_end)
        if job is not None and found is not None and found.is_ready and job.pid is not None:
            if found.pid == job.pid:
                return Outcome("ready")
            if found.pid is None:
                return Outcome("ready", OLDER)
        if clock() >= deadline:
            return _when_time_is_up(address, found, job)
        sleep(PAUSE)


def _when_time_is_up(address: Address, found: Readiness | None, job: JobState | None) -> Outcome:
    if job is None:
        return Outcome("loading")
    if found is None:
        no_warmd = "a program that is not warmd, or the server hangs"
        return Outcome("taken", no_warmd) if address.is_taken() else Outcome("loading")
    if job.pid is None:
        return Outcome("loading", "launchd names no process of the service")
    if found.pid not in (None, job.pid):
        return Outcome("taken", f"another warmd, pid {found.pid}")
    return Outcome("loading", found.reason)
