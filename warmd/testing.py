"""A scripted engine for tests: of this package, and of programs that build on it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import anyio
import anyio.lowlevel

from warmd.clock import Clock
from warmd.clock.moments import is_daily, unit_of
from warmd.disk.status import DiskStatus
from warmd.engines.base import (
    Effort,
    EngineDiedError,
    Foreseen,
    Held,
    Identity,
    LiveRequest,
    Prefix,
    ServerStatus,
    Warmed,
)
from warmd.errors import NotWarmableError, VolatileError
from warmd.memory.cost import Cost
from warmd.memory.readings import Memory
from warmd.prompts.document import Entry
from warmd.radix import common_length, pack


@dataclass(frozen=True, slots=True)
class Call:
    """One call that the engine received.

    Attributes:
        method: The `Engine` method.
        names: The entries concerned, by the name under which they were rendered last.
        thread_id: The thread that called.
    """

    method: Literal["render", "warm", "look_up", "drop"]
    names: tuple[str, ...]
    thread_id: int


class FakeEngine:
    """An `Engine` without a model: one token per character, no time passes, and it does what it is told.

    Entries are scripted by name, before or while the engine is used, from the event loop's thread. A warming
    goes chunk by chunk and reuses the longest beginning that it shares with what is held, like a real one.

    Args:
        model: The loaded model's name, or None for an engine that has none yet.
        chunk_tokens: Tokens between two calls of `on_progress`; other tasks run in between.
        kv_bytes_per_token: What a held token is said to cost.
        unwarmable: Why nothing can be kept warm for the first model, if so.
        clock: The local time, which entries can be made to print; see `warmd.clock.fake`.

    Attributes:
        calls: Every call, in order.
        running: Warmings that are going on now.
        peak_concurrency: The most warmings that ever went on at once.
        declared: Keys of the prefixes that were declared last.
    """

    def __init__(
        self,
        model: str | None = "fake",
        *,
        chunk_tokens: int = 512,
        kv_bytes_per_token: int = 8,
        unwarmable: str | None = None,
        clock: Clock = datetime.now,
    ) -> None:
        self.calls: list[Call] = []
        self.running = 0
        self.peak_concurrency = 0
        self._chunk_tokens = chunk_tokens
        self._kv_bytes_per_token = kv_bytes_per_token
        self._generation = 1
        self._identity = Identity(model, 1, unwarmable) if model is not None else None
        self._stored: dict[str, tuple[Prefix, Held]] = {}
        self._names: dict[str, str] = {}
        self._clock = clock
        self._formats: dict[str, str] = {}
        self._render_errors: dict[str, Exception] = {}
        self._warm_errors: dict[str, list[Exception]] = {}
        self._gates: dict[str, anyio.Event] = {}
        self._misses: dict[str, int | None] = {}
        self._limit: int | None = None
        self._pressure = 1
        self._memory_error: str | None = None
        self._effort: Effort | None = Effort()
        self._disk: DiskStatus | None = None
        self._server: ServerStatus | None = None
        self._disk_tokens: dict[str, int] = {}
        self.declared: frozenset[str] = frozenset()
        self._on_request: Callable[[LiveRequest], None] = lambda request: None
        self._sees_requests = True
        self._death: EngineDiedError | None = None
        self._is_changed = False
        self._news = anyio.Event()

    # --- the script ------------------------------------------------------------------------------

    def fail_render(self, name: str, error: Exception | None) -> None:
        """Make every rendering of an entry raise; None ends that."""
        self._render_errors.pop(name, None)
        if error is not None:
            self._render_errors[name] = error

    def print_time(self, name: str, time_format: str) -> None:
        """Let an entry begin with the time, in a format of `strftime`."""
        self._formats[name] = time_format

    def fail_warm(self, name: str, error: Exception, *, times: int = 1) -> None:
        """Make the next warmings of an entry raise, after their first chunk."""
        self._warm_errors.setdefault(name, []).extend([error] * times)

    def hold(self, name: str) -> anyio.Event:
        """Stop warmings of an entry after their first chunk until the returned event is set."""
        return self._gates.setdefault(name, anyio.Event())

    def miss(self, name: str, cached: int | None = 0) -> None:
        """Make look-ups of an entry find `cached` tokens at most; None: the engine cannot tell."""
        self._misses[name] = cached

    def limit_memory(self, limit: int | None, *, pressure: int = 1, error: str | None = None) -> None:
        """Keep a limit of so many bytes, all of which prefixes may take; None: as if there were none."""
        self._limit, self._pressure, self._memory_error = limit, pressure, error

    def work(self, effort: Effort | None) -> None:
        """Say that warming has taken so much, and whether there are requests; None: it cannot tell."""
        self._effort = effort

    def keep_on_disk(self, status: DiskStatus | None, **tokens: int) -> None:
        """Say that so much is on disk, and so many leading tokens of entries by name; warming reads none."""
        self._disk, self._disk_tokens = status, tokens

    def be_elsewhere(self, url: str, problem: str | None = None) -> None:
        """Say that this is a server elsewhere, and what is wrong with it."""
        self._server = ServerStatus(url, problem)

    def lose(self, name: str) -> None:
        """Forget an entry's prefix, as an engine does that evicts it."""
        for key in self._keys(name):
            self._stored.pop(key, None)
        self._announce()

    def serve(self, name: str) -> None:
        """Answer a live request that begins with an entry's prefix, if that is held."""
        for key in self._keys(name):
            if key in self._stored:
                prefix, _ = self._stored[key]
                size = len(prefix)
                self.request(LiveRequest(pack([*prefix.tokens, 0]), size, size))

    def request(self, request: LiveRequest) -> None:
        """Let a live request begin."""
        self._on_request(request)

    def hide_requests(self) -> None:
        """Say that live requests are not seen."""
        self._sees_requests = False

    def load(self, model: str | None, *, fingerprint: str = "") -> None:
        """Replace the model, also by itself; None unloads it. What was held is gone."""
        self._generation += 1
        self._identity = (
            Identity(model, self._generation, fingerprint=fingerprint) if model is not None else None
        )
        self._stored.clear()
        self._announce()

    def die(self, reason: str = "the engine's thread is gone") -> None:
        """End for good: everything raises from now on."""
        self._death = EngineDiedError(reason)
        self._announce()

    def names_of(self, method: str) -> list[str]:
        """The entries that a method was called for, in order."""
        return [name for call in self.calls if call.method == method for name in call.names]

    def texts(self) -> list[str]:
        """What is held, as text."""
        return ["".join(map(chr, prefix.tokens)) for prefix, _ in self._stored.values()]

    # --- the engine ------------------------------------------------------------------------------

    @property
    def identity(self) -> Identity | None:
        """The model that was loaded last."""
        return self._identity

    @property
    def sees_requests(self) -> bool:
        """Unless `hide_requests` was called."""
        return self._sees_requests

    def held(self) -> Mapping[str, Held]:
        """What is held now, by key."""
        return {key: held for key, (_, held) in self._stored.items()}

    def memory(self) -> Memory | None:
        """What `limit_memory` said, less what is held."""
        if self._limit is None:
            return None
        taken = sum(held.kv_bytes or 0 for _, held in self._stored.values())
        error = self._memory_error
        headroom = self._limit - taken if error is None else 0
        return Memory(self._limit, taken, 0, taken, headroom, self._pressure, error=error)

    def cost(self) -> Cost:
        """So much a token, and nothing besides."""
        return Cost(self._kv_bytes_per_token, largest_share=0.0, step=1)

    def effort(self) -> Effort | None:
        """What `work` said."""
        return self._effort

    def disk(self) -> DiskStatus | None:
        """What `keep_on_disk` said."""
        return self._disk

    def server(self) -> ServerStatus | None:
        """What `be_elsewhere` said."""
        return self._server

    def foresee(self, wanted: Sequence[tuple[Prefix, int]]) -> Sequence[Foreseen]:
        """What is shared is there, and on disk what `keep_on_disk` said."""
        found = []
        for prefix, shared in wanted:
            on_disk = self._disk_tokens.get(self._names[prefix.key], 0)
            reached = max(shared, min(len(prefix), on_disk))
            found.append(Foreseen(len(prefix) - reached, reached - shared))
        return found

    def declare(self, prefixes: Collection[Prefix]) -> None:
        """Remember them."""
        self.declared = frozenset(prefix.key for prefix in prefixes)

    def follow(self, on_request: Callable[[LiveRequest], None]) -> None:
        """Tell of what `serve` and `request` do."""
        self._on_request = on_request

    async def changed(self) -> None:
        """Return after `lose` or `load`, also when that was before the call; raise after `die`."""
        while not self._is_changed:
            self._raise_if_dead()
            await self._news.wait()
        self._is_changed = False
        self._raise_if_dead()

    async def render(self, entry: Entry) -> Prefix:
        """Render as JSON: arguments and tools, then the messages up to the user's text."""
        self._record("render", entry.name)
        if entry.name in self._render_errors:
            raise self._render_errors[entry.name]
        if entry.has_images:
            raise NotWarmableError("image content")
        prefix = Prefix(self._tokens(entry), entry.ends_in_user_turn, self._is_daily(entry))
        self._names[prefix.key] = entry.name
        return prefix

    async def warm(self, prefix: Prefix, on_progress: Callable[[int], None]) -> Warmed:
        """Go through the tokens that no held prefix begins with, chunk by chunk, then hold the prefix."""
        self._record("warm", self._names.get(prefix.key, prefix.key))
        self.running += 1
        self.peak_concurrency = max(self.peak_concurrency, self.running)
        try:
            return await self._prefill(prefix, on_progress)
        finally:
            self.running -= 1

    async def look_up(self, entry: Entry, prefix: Prefix) -> int | None:
        """The whole prefix when it is held and nothing else was scripted."""
        self._record("look_up", entry.name)
        await anyio.lowlevel.checkpoint()
        found = common_length(self._tokens(entry), prefix.tokens) if prefix.key in self._stored else 0
        scripted = self._misses.get(entry.name, found)
        return None if scripted is None else min(found, scripted)

    async def drop(self, keys: Collection[str]) -> None:
        """Forget these prefixes."""
        self._record("drop", *(self._names.get(key, key) for key in keys))
        for key in keys:
            self._stored.pop(key, None)

    # --- inside ----------------------------------------------------------------------------------

    def _tokens(self, entry: Entry) -> tuple[int, ...]:
        time = self._clock().strftime(self._formats.get(entry.name, ""))
        return tuple(map(ord, time + _render_text(entry)))

    def _is_daily(self, entry: Entry) -> bool:
        now, formats = self._clock(), [self._formats.get(entry.name, "")]
        if (unit := unit_of(formats, now)) is not None:
            raise VolatileError(0, f"it prints the {unit}")
        return is_daily(formats, now)

    async def _prefill(self, prefix: Prefix, on_progress: Callable[[int], None]) -> Warmed:
        name, generation = self._names.get(prefix.key, prefix.key), self._generation
        reused = max(
            (common_length(other.tokens, prefix.tokens) for other, _ in self._stored.values()), default=0
        )
        for start in range(reused, len(prefix), self._chunk_tokens):
            await anyio.lowlevel.checkpoint()
            on_progress(min(start + self._chunk_tokens, len(prefix)))
            if start == reused:
                await self._obey(name)
        self._raise_if_dead()
        if generation != self._generation:
            raise RuntimeError("the model was replaced")
        held = Held(len(prefix) * self._kv_bytes_per_token)
        self._stored[prefix.key] = prefix, held
        return Warmed(len(prefix), len(prefix) - reused, reused, held.kv_bytes)

    async def _obey(self, name: str) -> None:
        if gate := self._gates.get(name):
            await gate.wait()
        if errors := self._warm_errors.get(name):
            raise errors.pop(0)

    def _keys(self, name: str) -> list[str]:
        return [key for key, rendered in self._names.items() if rendered == name]

    def _record(self, method: Literal["render", "warm", "look_up", "drop"], *names: str) -> None:
        self.calls.append(Call(method, names, threading.get_ident()))
        self._raise_if_dead()

    def _raise_if_dead(self) -> None:
        if self._death is not None:
            raise self._death

    def _announce(self) -> None:
        self._is_changed = True
        self._news.set()
        self._news = anyio.Event()


def _render_text(entry: Entry) -> str:
    messages = list(entry.messages[:-1] if entry.ends_in_user_turn else entry.messages)
    head = json.dumps([entry.chat_template_kwargs, entry.tools], ensure_ascii=False)
    # Without the closing bracket: a longer conversation continues the text of a shorter one.
    return head + json.dumps(messages, ensure_ascii=False)[:-1]
