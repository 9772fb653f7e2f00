"""What was measured, and how. Times are seconds, sizes bytes, counts tokens; None is what cannot be told."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

HOW = {
    "cold_s": "a request of the entry with another beginning of its text and tools, which no cache knows",
    "warm_s": "a request of the entry, each with other words of the user",
    "tail_s": "a request of the same user's words alone, with what the template puts around them",
    "edit_tokens": 'prefilled after " Be brief." was added to the last text of the entry, all else as it was',
    "restart_tokens": "prefilled after the server was stopped and started again with the same state on disk",
    "kv_bytes": "held for the entry; what entries begin with in common is counted for the first one",
    "interference": (
        "the largest entry gets another beginning, and as its warming begins a request of user's words alone "
        "is sent; compared with the same request while nothing is warmed, in turns"
    ),
    "times": (
        "each is that of a whole HTTP answer of one token: connecting, HTTP and JSON included; medians of "
        "the rounds, in each of which every kind of request comes once for each entry and server, in turns. "
        "mlx-lm's own prompt cache is off, so that only warm prefixes help. Requests are the same in each run"
    ),
    "compare": (
        "the other server gets the same requests; what is its warm time comes after one request of the entry "
        "that is not counted, as that server was not told of the entries"
    ),
}
"""How each number came about."""


@dataclass(frozen=True, slots=True)
class Times:
    """Medians of one entry on one server.

    Attributes:
        cold_cached: Tokens of cold requests that came from a cache all the same, at most.
        warm_cached: Tokens of warm requests that came from one, at least.
    """

    cold_s: float | None = None
    warm_s: float | None = None
    tail_s: float | None = None
    cold_cached: int | None = None
    warm_cached: int | None = None


@dataclass(frozen=True, slots=True)
class EntryResult:
    """One entry.

    Attributes:
        name: The entry.
        tokens: Of its prefix.
        state: After the start.
        reason: Why it was not measured.
        kv_bytes: Held for it.
        times: On our server.
        other: On the other one.
        edit_tokens: Prefilled for a small edit.
        restart_tokens: Prefilled after a restart.
    """

    name: str
    state: str
    reason: str | None = None
    tokens: int | None = None
    kv_bytes: int | None = None
    times: Times = field(default_factory=Times)
    other: Times | None = None
    edit_tokens: int | None = None
    restart_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Interference:
    """What a live request loses to warming.

    Attributes:
        entry: The one that was warmed meanwhile.
        idle_s: Time of the request while nothing is warmed.
        beside_s: While that is.
        met: Of the rounds, in how many warming went on until the answer had come.
    """

    entry: str
    idle_s: float
    beside_s: float
    met: int


@dataclass(frozen=True, slots=True)
class BenchResult:
    """One run."""

    version: str
    model: str
    rounds: int
    entries: tuple[EntryResult, ...]
    kv_bytes: int
    restart_s: float | None
    interference: Interference | None
    compared_with: str | None = None

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {**asdict(self), "how": HOW}
