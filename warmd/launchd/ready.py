"""Is the server there? Asked over HTTP, from outside."""

from __future__ import annotations

import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from warmd.launchd.agent import flag_value
from warmd.launchd.launchctl import JobState

HOST, PORT = "127.0.0.1", 8080
"""mlx_lm.server's defaults."""
ANSWER_SECONDS = 5.0
PAUSE = 0.5

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
        port = flag_value(arguments, "--port") or ""
        return cls(_EVERYWHERE.get(host, host), int(port) if port.isdigit() else PORT)

    @classmethod
    def of_url(cls, url: str) -> Address:
        """From what a running daemon says."""
        found = urlsplit(url)
        host = found.hostname or HOST
        return cls(_EVERYWHERE.get(host, host), found.port or PORT)

    @property
    def url(self) -> str:
        """Without a path."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"

    def is_taken(self) -> bool:
        """True when somebody listens there."""
        try:
            with socket.create_connection((self.host, self.port), timeout=ANSWER_SECONDS):
                return True
        except OSError:
            return False


@dataclass(frozen=True, slots=True)
class Readiness:
    """What `/readyz` says.

    Attributes:
        is_ready: Requests are taken.
        reason: Why not, in one line; None when nobody answers.
    """

    is_ready: bool
    reason: str | None = None


def ask_ready(address: Address) -> Readiness | None:
    """Ask `/readyz`; None when what answers, if anything does, is no warmd."""
    # Whatever proxy a shell has set is not for this machine itself.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{address.url}/readyz", timeout=ANSWER_SECONDS) as answer:
            return _parse(answer.read(), is_ready=True)
    except urllib.error.HTTPError as error:
        with error:
            return _parse(error.read(), is_ready=False)
    except (OSError, ValueError):
        return None


def _parse(body: bytes, *, is_ready: bool) -> Readiness | None:
    try:
        found: Any = json.loads(body)
    except ValueError:
        return None
    if not isinstance(found, dict) or "warm" not in found:
        return None
    return Readiness(is_ready, found.get("reason"))


@dataclass(frozen=True, slots=True)
class Outcome:
    """How waiting ended: `ready`, `loading` (it runs, and time is up) or `failed`, with how it ended."""

    state: str
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
    """Wait for the server to take requests, for its process to fail, or for the time to be up.

    Args:
        address: Where it listens.
        find: How the job is in launchd; None when it is not loaded.
        seconds: How long to wait.
        runs_before: How often the job had been started by then: the end of those is not what is waited for.
        sleep: Waits for so many seconds.
        clock: Seconds, of whatever beginning.
    """
    deadline = clock() + seconds
    while True:
        found = ask_ready(address)
        if found is not None and found.is_ready:
            return Outcome("ready")
        job = find()
        if job is None:
            return Outcome("failed", "launchd has dropped the job")
        if job.has_ended and job.runs > runs_before:
            return Outcome("failed", job.last_end)
        if clock() >= deadline:
            return Outcome("loading", found.reason if found is not None else None)
        sleep(PAUSE)
