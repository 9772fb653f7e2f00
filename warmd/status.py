"""The one statistics value that feeds logs, people and tests."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from warmd.disk.status import DiskStatus
from warmd.memory.readings import Memory
from warmd.prompts.document import FileError

if TYPE_CHECKING:
    from warmd.engines.base import ServerStatus
    from warmd.suggestions import Suggestion

State = Literal[
    "pending",
    "warming",
    "warm",
    "deferred",
    "failed",
    "volatile",
    "unwarmable",
    "stored_not_served",
    "quarantined",
]

SERVED: tuple[State, ...] = ("warm", "stored_not_served")
"""The states of an entry that the engine holds."""
SHOWN_HASH = 12
"""Hex digits of a hash that people and programs get to see: enough to tell prefixes apart."""


@dataclass(frozen=True, slots=True)
class EntryStatus:
    """What is known about one entry. Counts are tokens, sizes bytes, times seconds since the epoch.

    Attributes:
        name: The entry.
        state: One of the nine contract states.
        prefix: Beginning of the hash of its prefix's tokens: entries that have the same share their state.
        tokens: Length of its prefix, None until it has been rendered.
        done_tokens: While warming, tokens prefilled so far.
        tokens_per_s: While warming, how fast that goes, without what live requests take where the engine can
            tell; None until it can be told.
        kv_bytes: What the engine holds for it, None where unknown.
        source: Where its state came from.
        warmed_at: When it last became warm.
        hits: Live requests that began from its state; this and what else is of requests is None where the
            engine does not see them.
        tokens_saved: Tokens that they did not have to prefill.
        last_hit_at: When the last one came.
        near_misses: Requests that began like it and then parted from it.
        warm_seconds: What warming it has taken, also in vain.
        reason: For a person: why it is not warm, or where its prefix ends.
    """

    name: str
    state: State = "pending"
    prefix: str | None = None
    tokens: int | None = None
    done_tokens: int = 0
    tokens_per_s: float | None = None
    kv_bytes: int | None = None
    source: str | None = None
    warmed_at: float | None = None
    hits: int | None = 0
    tokens_saved: int | None = 0
    last_hit_at: float | None = None
    near_misses: int | None = 0
    warm_seconds: float = 0.0
    reason: str | None = None

    def without_requests(self) -> EntryStatus:
        """The same where nobody sees requests: it is not that there were none."""
        return replace(self, hits=None, tokens_saved=None, near_misses=None)


@dataclass(frozen=True, slots=True)
class DocumentStatus:
    """Which revisions of the file have been seen, accepted and applied, as generation numbers.

    Times are in seconds since the epoch, None where that has not happened yet.

    Attributes:
        accepted_at: When the last one was accepted.
        last_event_at: When the system last reported anything in the watched folders.
        last_check_at: When the files were last looked at, event or not.
        missed_event_at: When such a look last found a change that no event had announced.
    """

    path: Path
    sha256: str | None = None
    seen: int = 0
    accepted: int = 0
    applied: int = 0
    errors: tuple[FileError, ...] = ()
    accepted_at: float | None = None
    last_event_at: float | None = None
    last_check_at: float | None = None
    missed_event_at: float | None = None


@dataclass(slots=True)
class LiveCounts:
    """Live requests since the daemon started, also those of entries and models that are gone.

    Attributes:
        requests: All of them.
        hits: Those that began from all of an entry.
        tokens_saved: Tokens that these did not have to prefill for it.
        near_misses: Those that began like an entry and then parted from it.
    """

    requests: int = 0
    hits: int = 0
    tokens_saved: int = 0
    near_misses: int = 0


@dataclass(frozen=True, slots=True)
class Statistics:
    """A snapshot of the daemon.

    Attributes:
        live: What live requests made of the entries; None where the engine does not see them.
        paused: Nothing is warmed until somebody says so.
        suggestions: Beginnings that no entry has and that are prefilled cold again and again; None
            as for `live`.
        disk: What is on disk; None where nothing is kept there.
        url: Where live requests go; None where that is not known.
        server: The server elsewhere that is warmed; None where the engine is in this process.
    """

    version: str
    pid: int
    uptime_s: float
    model: str | None
    document: DocumentStatus
    entries: tuple[EntryStatus, ...] = field(default=())
    memory: Memory | None = None
    live: LiveCounts | None = field(default_factory=LiveCounts)
    paused: bool = False
    suggestions: tuple[Suggestion, ...] | None = ()
    disk: DiskStatus | None = None
    url: str | None = None
    server: ServerStatus | None = None

    def count(self, state: State) -> int:
        """How many entries are in a state."""
        return sum(entry.state == state for entry in self.entries)


def status_json(statistics: Statistics) -> dict[str, Any]:
    """Statistics as JSON, for programs: bytes and seconds, null where something is not known."""
    return {
        "version": statistics.version,
        "pid": statistics.pid,
        "uptime_s": statistics.uptime_s,
        "model": statistics.model,
        "url": statistics.url,
        "server": asdict(statistics.server) if statistics.server is not None else None,
        "paused": statistics.paused,
        "document": document_json(statistics.document),
        "memory": asdict(statistics.memory) if statistics.memory is not None else None,
        "disk": asdict(statistics.disk) if statistics.disk is not None else None,
        "entries": [asdict(entry) for entry in statistics.entries],
        "totals": _totals(statistics),
        "live": asdict(statistics.live) if statistics.live is not None else None,
        "suggestions": _suggestions(statistics.suggestions),
    }


def _suggestions(found: tuple[Suggestion, ...] | None) -> list[dict[str, Any]] | None:
    if found is None:
        return None
    return [{"prefix": item.key[:SHOWN_HASH], "tokens": item.tokens, "times": item.times} for item in found]


def document_json(document: DocumentStatus) -> dict[str, Any]:
    """The state of the file as JSON."""
    return {**asdict(document), "path": str(document.path)}


def _totals(statistics: Statistics) -> dict[str, Any]:
    # Entries with equal tokens share their state.
    distinct = {entry.prefix or entry.name: entry for entry in statistics.entries}.values()
    live = statistics.live
    return {
        "entries": len(statistics.entries),
        "states": {state: statistics.count(state) for state in get_args(State)},
        "tokens": _sum(distinct, lambda entry: entry.tokens),
        "kv_bytes": _sum(distinct, lambda entry: entry.kv_bytes),
        # Entries begin anew with each edit; what requests were spared in all does not shrink by one.
        "hits": live.hits if live is not None else None,
        "tokens_saved": live.tokens_saved if live is not None else None,
        "near_misses": live.near_misses if live is not None else None,
        "warm_seconds": sum(entry.warm_seconds for entry in distinct),
    }


def _sum(entries: Collection[EntryStatus], read: Callable[[EntryStatus], int | None]) -> int | None:
    """None where an entry that is held has a number that nobody knows."""
    if any(read(entry) is None for entry in entries if entry.state in SERVED):
        return None
    return sum(read(entry) or 0 for entry in entries)
