"""Takes the measurements, one after the other."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from warmd import __version__
from warmd.bench.errors import AskedServerError, NothingToMeasureError
from warmd.bench.requests import Request, cold_request, marked, prompts_file, tail_request, warm_request
from warmd.bench.result import BenchResult, EntryResult, Interference, Times
from warmd.bench.server import OwnServer, own_server
from warmd.engines.http.server import AnswerError, ChatServer, UnreachableError
from warmd.prompts.document import Entry

T = TypeVar("T")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Order:
    """What to measure.

    Attributes:
        model: A folder or name.
        entries: Of the user's file.
        rounds: How many.
        flags: More flags for the server.
        other: Another server, and the model to ask it for; None for none.
        say: Told what is going on.
    """

    model: str
    entries: Sequence[Entry]
    rounds: int
    flags: Sequence[str] = ()
    other: tuple[ChatServer, str] | None = None
    say: Say = lambda line: None


@dataclass(slots=True)
class Party:
    """One server that gets the requests, and what came of them, by entry and kind."""

    server: ChatServer
    model: str
    seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    cached: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    async def time(self, request: Request) -> tuple[float, int | None]:
        """Seconds to the end of an answer of one token, and how much of the prompt came from a cache."""
        began = time.perf_counter()
        try:
            usage = await self.server.prefill({"model": self.model, **request})
        except (UnreachableError, AnswerError) as error:
            raise AskedServerError(self.server.base_url, str(error)) from None
        return time.perf_counter() - began, usage.cached

    async def note(self, name: str, kind: str, request: Request) -> None:
        """Time a request and keep what came of it."""
        seconds, cached = await self.time(request)
        self.seconds.setdefault((name, kind), []).append(seconds)
        if cached is not None:
            self.cached.setdefault((name, kind), []).append(cached)

    def times(self, name: str) -> Times:
        """The medians of one entry."""
        return Times(
            cold_s=statistics.median(self.seconds[name, "cold"]),
            warm_s=statistics.median(self.seconds[name, "warm"]),
            tail_s=statistics.median(self.seconds[name, "tail"]),
            cold_cached=max(self.cached.get((name, "cold"), ()), default=None),
            warm_cached=min(self.cached.get((name, "warm"), ()), default=None),
        )


async def measure(order: Order) -> BenchResult:
    """Measure everything.

    Raises:
        ServerEndedError: Our server cannot start, or has died.
        NothingToMeasureError: No entry became warm.
        AskedServerError: A server cannot be reached, or refuses a request.
    """
    # Short, for the control socket in it.
    with tempfile.TemporaryDirectory(prefix="warmd-bench-") as name:
        folder = Path(name)
        prompts = folder / "prompts.json"
        _save(prompts, order.entries)
        result = await _first_run(order, prompts, folder / "state")
        return await _restart(order, result, prompts, folder / "state")


async def _first_run(order: Order, prompts: Path, state: Path) -> BenchResult:
    order.say("the server starts and warms every entry")
    async with own_server(order.model, prompts, state, order.flags) as server:
        await server.wait_for("daemon.ready")
        await server.settled()
        status = await server.ask("status")
        found = [_entry_result(entry) for entry in status["entries"]]
        # The file's names: unnamed ones keep their place, and so their number.
        entries = [entry for entry in order.entries if _is_warm(found, entry.name)]
        if not entries:
            raise NothingToMeasureError([f"{each.name}: {each.reason or each.state}" for each in found])
        async with ChatServer(server.url) as chat:
            ours = Party(chat, "default_model")
            other = Party(*order.other) if order.other is not None else None
            await _time_requests(order, entries, [ours] if other is None else [ours, other])
            interference = await _interfere(order, server, ours, found, prompts)
        edits = await _edit(order, server, prompts, [entry.name for entry in entries])
        await server.written()
    names = [entry.name for entry in entries]
    return BenchResult(
        version=__version__,
        model=order.model,
        rounds=order.rounds,
        entries=tuple(_with_times(each, names, ours, other, edits) for each in found),
        kv_bytes=status["totals"]["kv_bytes"],
        restart_s=None,
        interference=interference,
        compared_with=order.other[0].base_url if order.other is not None else None,
    )


def _entry_result(status: dict[str, Any]) -> EntryResult:
    reason = None if status["state"] == "warm" else status["reason"]
    return EntryResult(status["name"], status["state"], reason, status["tokens"], status["kv_bytes"])


def _is_warm(found: Sequence[EntryResult], name: str) -> bool:
    return any(each.name == name and each.state == "warm" for each in found)


def _with_times(
    result: EntryResult, names: Collection[str], ours: Party, other: Party | None, edits: dict[str, int]
) -> EntryResult:
    if result.name not in names:
        return result
    return replace(
        result,
        times=ours.times(result.name),
        other=other.times(result.name) if other is not None else None,
        edit_tokens=edits.get(result.name),
    )


async def _time_requests(order: Order, entries: Sequence[Entry], parties: Sequence[Party]) -> None:
    for party in parties:
        # The first request of a process pays for what is set up once, and the other server's warms nothing.
        await party.time(tail_request(0))
    for party in parties[1:]:
        for entry in entries:
            order.say(f"{party.server.base_url} gets {entry.name} for the first time")
            await party.time(warm_request(entry, 0))
    for turn in range(order.rounds):
        order.say(f"round {turn + 1} of {order.rounds}")
        for place, entry in enumerate(entries):
            number = 1 + turn * len(entries) + place
            kinds = [
                ("cold", cold_request(entry, number)),
                ("warm", warm_request(entry, number)),
                ("tail", tail_request(number)),
            ]
            for kind, request in _turned(kinds, turn):
                for party in _turned(parties, turn):
                    await party.note(entry.name, kind, request)


def _turned(items: Sequence[T], turn: int) -> list[T]:
    first = turn % len(items)
    return [*items[first:], *items[:first]]


async def _interfere(
    order: Order, server: OwnServer, ours: Party, found: Sequence[EntryResult], prompts: Path
) -> Interference:
    largest = max((each for each in found if each.state == "warm"), key=lambda each: each.tokens or 0)
    idle: list[float] = []
    beside: list[float] = []
    met = 0
    for turn in range(order.rounds):
        order.say(f"beside the warming of {largest.name}: {turn + 1} of {order.rounds}")
        idle.append((await ours.time(tail_request(turn)))[0])
        since = len(server.events)
        # Not warmed once more as it is: its state may be on disk.
        _save(prompts, [marked(e, turn) if e.name == largest.name else e for e in order.entries])
        await server.wait_for("entry.warming", since=since, entry=largest.name)
        beside.append((await ours.time(tail_request(turn)))[0])
        ended = ("entry.warmed", "entry.failed", "entry.deferred")
        met += not any(event.get("event") in ended for event in server.events[since:])
        await server.wait_for(*ended, since=since, entry=largest.name)
    since = len(server.events)
    _save(prompts, order.entries)
    await server.wait_for("prompts.accepted", since=since)
    await server.settled(since)
    return Interference(largest.name, statistics.median(idle), statistics.median(beside), met)


async def _edit(order: Order, server: OwnServer, prompts: Path, names: Sequence[str]) -> dict[str, int]:
    """Edit every entry at once; what was prefilled for each."""
    order.say("every entry is edited")
    since = len(server.events)
    _save(prompts, order.entries, names)
    await server.wait_for("prompts.accepted", since=since)
    await server.settled(since)
    return _prefilled(server, since)


async def _restart(order: Order, result: BenchResult, prompts: Path, state: Path) -> BenchResult:
    order.say("the server starts again")
    began = time.perf_counter()
    async with own_server(order.model, prompts, state, order.flags) as server:
        await server.wait_for("daemon.ready")
        await server.settled()
        seconds = time.perf_counter() - began
        tokens = _prefilled(server, 0)
    entries = tuple(replace(each, restart_tokens=tokens.get(each.name)) for each in result.entries)
    return replace(result, entries=entries, restart_s=seconds)


def _prefilled(server: OwnServer, since: int) -> dict[str, int]:
    warmed = [event for event in server.events[since:] if event.get("event") == "entry.warmed"]
    return {str(event["entry"]): int(event["new_tokens"]) for event in warmed}


def _save(path: Path, entries: Sequence[Entry], edits: Sequence[str] = ()) -> None:
    path.write_text(json.dumps(prompts_file(entries, edits)), encoding="utf-8")
