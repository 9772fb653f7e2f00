"""Answers to GET, for whatever HTTP server is there. Nothing here changes anything or shows prompt text."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from warmd.status import status_json
from warmd.web.hosts import is_ours
from warmd.web.live import Snapshot, UnavailableError
from warmd.web.metrics import CONTENT_TYPE, exposition
from warmd.web.page import load_page

PATHS = ("/warmd/status", "/warmd", "/metrics", "/readyz")
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
NOTHING = "default-src 'none'; frame-ancestors 'none'"
"""The policy of what is no page."""

REFUSAL = (
    "answered only under localhost, 127.0.0.1, [::1] or the server's --host, which the Host header is not\n"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What to send."""

    status: int
    content_type: str
    body: bytes
    policy: str = NOTHING

    @property
    def headers(self) -> Mapping[str, str]:
        """All but the date: no other site's page may read, frame or keep it."""
        return {
            "Content-Type": self.content_type,
            "Content-Length": str(len(self.body)),
            "Content-Security-Policy": self.policy,
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }


def is_path(target: str) -> bool:
    """True when a request's target is one of ours."""
    return _path(target) in PATHS


class Site:
    """What can be looked at. Used from many threads.

    Args:
        look: Takes a snapshot of the daemon, or raises `UnavailableError`.
        problem: Says in one line why the engine takes no requests, or returns None.
        host: What the server was told to listen on.
    """

    def __init__(self, look: Callable[[], Snapshot], problem: Callable[[], str | None], host: str) -> None:
        self._look = look
        self._problem = problem
        self._host = host

    def answer(self, target: str, hosts: Sequence[str]) -> Answer:
        """Answer a GET.

        Args:
            target: The request's, of which `is_path` is true.
            hosts: The values of its Host headers.
        """
        if not is_ours(hosts, self._host):
            return Answer(403, TEXT, REFUSAL.encode())
        answers = {"/warmd/status": self._status, "/metrics": self._metrics, "/readyz": self._ready}
        try:
            return answers.get(_path(target), _page)()
        except UnavailableError as error:
            return Answer(503, TEXT, f"{error}\n".encode())

    def _status(self) -> Answer:
        found = self._look()
        events = [asdict(event) for event in found.events]
        return _json(200, {**status_json(found.statistics), "events": events})

    def _metrics(self) -> Answer:
        return Answer(200, CONTENT_TYPE, exposition(self._look().statistics))

    def _ready(self) -> Answer:
        """Alive and accepting requests; how warm it is does not matter."""
        problem, model, entries, warm = self._problem(), None, None, None
        try:
            found = self._look().statistics
            model, entries, warm = found.model, len(found.entries), found.count("warm")
        except UnavailableError as error:
            problem = problem or str(error)
        fields = {
            "ready": problem is None,
            "reason": problem,
            # Whoever has started a process can tell that it is this one that answers.
            "pid": os.getpid(),
            "model": model,
            "entries": entries,
            "warm": warm,
        }
        return _json(200 if problem is None else 503, fields)


def _page() -> Answer:
    page = load_page()
    return Answer(200, "text/html; charset=utf-8", page.html, page.policy)


def _json(status: int, value: Mapping[str, Any]) -> Answer:
    return Answer(status, JSON, f"{json.dumps(value, allow_nan=False)}\n".encode())


def _path(target: str) -> str:
    path = target.partition("?")[0]
    return "/warmd" if path == "/warmd/" else path
