"""Our paths on mlx-lm's real HTTP server, over a daemon that is made up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.patience import PATIENCE
from warmd.engines.mlx_lm.http import attach_generator, listen
from warmd.events import make_event
from warmd.memory.readings import Memory
from warmd.prompts.document import FileError
from warmd.status import DocumentStatus, EntryStatus, LiveCounts, Statistics
from warmd.web.live import Snapshot, UnavailableError
from warmd.web.recent import Recent
from warmd.web.site import Site

NOW = 1_790_000_000.0
MIB = 1 << 20

MEMORY = Memory(
    limit=16_000 * MIB,
    active=9_000 * MIB,
    cache=700 * MIB,
    warm=3_100 * MIB,
    headroom=5_500 * MIB,
    pressure=1,
    reserve=512 * MIB,
)

ENTRIES = (
    EntryStatus(
        "code-reviewer",
        "warm",
        prefix="a1",
        tokens=18_204,
        kv_bytes=1_190 * MIB,
        source="prefill",
        warmed_at=NOW,
        hits=41,
        tokens_saved=746_364,
        last_hit_at=NOW,
        warm_seconds=73.5,
    ),
    EntryStatus("shell", "warming", prefix="a2", tokens=9_310, done_tokens=4_096, tokens_per_s=212.4),
    EntryStatus("triage", prefix="a3", tokens=2_048),
    EntryStatus(
        "docs",
        "deferred",
        prefix="a4",
        tokens=39_870,
        near_misses=3,
        reason="needs 6.2 GB, 5.77 GB are available",
    ),
    EntryStatus("legacy", "failed", reason="the template does not accept these messages: TemplateError"),
    EntryStatus("clocked", "volatile", prefix="a5", tokens=812, reason="its text changes at character 211"),
)

LIVE = LiveCounts(requests=60, hits=43, tokens_saved=801_004, near_misses=4)

DOCUMENT = DocumentStatus(
    Path("/Users/me/.config/warmd/prompts.json"), "ab" * 32, seen=7, accepted=7, applied=6, accepted_at=NOW
)


def make_statistics(**changes: Any) -> Statistics:
    """A daemon in the middle of its work."""
    found = Statistics("0.1.0", 4242, 7_384.0, "/models/Qwen3-8B-4bit", DOCUMENT, ENTRIES, MEMORY, LIVE)
    return replace(found, **changes)


def rejected(*errors: FileError) -> DocumentStatus:
    """The file with errors in it."""
    return replace(DOCUMENT, seen=8, errors=errors)


def make_recent() -> Recent:
    """Some events."""
    recent = Recent()
    for event in (
        make_event(
            "plan.made", generation=7, keep=1, warm=3, drop=0, defer=1, new_tokens=51_228, disk_tokens=0
        ),
        make_event(
            "entry.deferred", entry="docs", needed=6_200_000_000, available=5_770_000_000, reason="words"
        ),
        make_event("entry.warming", entry="shell", tokens=9_310),
        make_event("live.hit", entry="code-reviewer", tokens=18_630, cached=18_204),
        make_event(
            "live.near_miss", entry="docs", tokens=40_002, matched=1_530, prefix_tokens=39_870, cached=0
        ),
    ):
        recent(event)
    return recent


@dataclass
class Stage:
    """What there is to be seen, and the server that shows it."""

    statistics: Statistics = field(default_factory=make_statistics)
    recent: Recent = field(default_factory=make_recent)
    problem: str | None = None
    is_stuck: bool = False
    looks: int = 0
    port: int = 0

    def look(self) -> Snapshot:
        """Stands for the daemon."""
        self.looks += 1
        if self.is_stuck:
            raise UnavailableError
        return Snapshot(self.statistics, self.recent.events())

    @property
    def address(self) -> str:
        """Where it serves."""
        return f"http://127.0.0.1:{self.port}"

    def ask(self, path: str, *, method: str = "GET", **headers: str) -> tuple[HTTPResponse, str]:
        """The answer to a request, and its body."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer, answer.read().decode()
        finally:
            connection.close()


@contextmanager
def staged(host: str = "127.0.0.1") -> Iterator[Stage]:
    """A server, which was told to listen on `host` as far as it knows."""
    stage = Stage()
    http_server = listen("127.0.0.1", 0)
    stage.port = http_server.server_address[1]
    generator = SimpleNamespace(is_healthy=True, cli_args=SimpleNamespace(allowed_origins=["*"], model=None))
    attach_generator(http_server, generator, Site(stage.look, lambda: stage.problem, host))
    thread = threading.Thread(target=http_server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield stage
    finally:
        http_server.shutdown()
        thread.join()
        http_server.drain(20)
        http_server.server_close()
