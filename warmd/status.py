"""The one statistics value that feeds logs, people and tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from warmd.memory.readings import Memory
from warmd.prompts.document import FileError

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


@dataclass(frozen=True, slots=True)
class EntryStatus:
    """What is known about one entry. Counts are tokens, sizes bytes, times seconds since the epoch.

    Attributes:
        name: The entry.
        state: One of the nine contract states.
        tokens: Length of its prefix, None until it has been rendered.
        done_tokens: While warming, tokens prefilled so far.
        kv_bytes: What the engine holds for it, None where unknown.
        source: Where its state came from.
        warmed_at: When it last became warm.
        hits: Live requests that began from its state.
        tokens_saved: Tokens that they did not have to prefill.
        last_hit_at: When the last one came.
        near_misses: Requests that began like it and then parted from it.
        warm_seconds: What warming it has taken, also in vain.
        reason: For a person: why it is not warm, or where its prefix ends.
    """

    name: str
    state: State = "pending"
    tokens: int | None = None
    done_tokens: int = 0
    kv_bytes: int | None = None
    source: str | None = None
    warmed_at: float | None = None
    hits: int = 0
    tokens_saved: int = 0
    last_hit_at: float | None = None
    near_misses: int = 0
    warm_seconds: float = 0.0
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class DocumentStatus:
    """Which revisions of the file have been seen, accepted and applied, as generation numbers.

    `accepted_at` is when the last one was accepted, in seconds since the epoch.
    """

    path: Path
    sha256: str | None = None
    seen: int = 0
    accepted: int = 0
    applied: int = 0
    errors: tuple[FileError, ...] = ()
    accepted_at: float | None = None


@dataclass(frozen=True, slots=True)
class Statistics:
    """A snapshot of the daemon."""

    version: str
    pid: int
    uptime_s: float
    model: str | None
    document: DocumentStatus
    entries: tuple[EntryStatus, ...] = field(default=())
    memory: Memory | None = None

    def count(self, state: State) -> int:
        """How many entries are in a state."""
        return sum(entry.state == state for entry in self.entries)
