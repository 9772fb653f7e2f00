"""What live requests make of the warm entries: hits, near misses, and beginnings that nobody declared."""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from time import time
from typing import Protocol

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from warmd.engines.base import LiveRequest
from warmd.errors import WarmdError
from warmd.ledger import Slot
from warmd.radix import Node, Sharing, Tokens, common_length
from warmd.status import LiveCounts

NEAR_TOKENS = 64
"""A request that begins with so many tokens of an entry, or with a tenth of it, was meant for it."""
NEAR_LEAST = 16
"""Fewer are what templates open with, and the first words of many prompts."""
REMEMBERED = 8
"""Near misses that are kept with their texts, for `warmd explain`."""


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A request that began like an entry and then parted from it.

    Attributes:
        entry: The entry.
        at: When, in seconds since the epoch.
        matched: Tokens that both begin with.
        slot: The entry's prefix as it was.
        request: The request, with its texts: for the user's own terminal only.
        counted_for: The entry that it was counted for, where that is another which it fits as well.
    """

    entry: str
    at: float
    matched: int
    slot: Slot
    request: LiveRequest
    counted_for: str | None = None


class Reporter(Protocol):
    """Who is told, without any text."""

    def hit(self, slot: Slot, request: LiveRequest) -> None:
        """A request began from all of an entry's prefix."""

    def near_miss(self, slot: Slot, request: LiveRequest, matched: int) -> None:
        """A request parted from an entry's prefix."""


class Listeners:
    """Those who wait for requests, such as `warmd capture`."""

    MOST = 8
    WAITING = 32

    def __init__(self) -> None:
        self._open: set[MemoryObjectSendStream[LiveRequest]] = set()

    @contextmanager
    def listen(self) -> Iterator[MemoryObjectReceiveStream[LiveRequest]]:
        """Every request from now on, until the end of the block; what nobody takes in time is left out.

        Raises:
            TooManyListenersError: There are enough already.
        """
        if len(self._open) >= self.MOST:
            raise TooManyListenersError
        sender, receiver = anyio.create_memory_object_stream[LiveRequest](self.WAITING)
        self._open.add(sender)
        try:
            with sender, receiver:
                yield receiver
        finally:
            self._open.discard(sender)

    def tell(self, request: LiveRequest) -> None:
        """Pass one on. Never waits: requests come first."""
        for sender in self._open:
            with suppress(anyio.WouldBlock):
                sender.send_nowait(request)


class TooManyListenersError(WarmdError):
    """Each listener may keep some requests, so there is an end to their number."""

    def __init__(self) -> None:
        super().__init__(f"{Listeners.MOST} others already wait for requests")


class Traffic:
    """Accounts for each live request.

    Args:
        tell: Who is told.
    """

    def __init__(self, tell: Reporter) -> None:
        self._tell = tell
        self._slots: Mapping[str, Slot] = {}
        self._sharing = Sharing()
        self._nearest: dict[tuple[Node[int], bool], str | None] = {}
        self.near_misses: deque[NearMiss] = deque(maxlen=REMEMBERED)
        self.suggestions = Suggestions()
        self.listeners = Listeners()
        self.counts = LiveCounts()

    def follow(self, slots: Mapping[str, Slot]) -> None:
        """From now on these are the wanted prefixes, by key."""
        if slots.keys() != self._slots.keys():
            prefixes = {key: slot.prefix.packed for key, slot in slots.items()}
            self._sharing.become(prefixes)
            self.suggestions.follow(prefixes)
            self._nearest = {}
        self._slots = dict(slots)

    def forget(self) -> None:
        """Start over: another model has other tokens."""
        self._slots, self._sharing, self._nearest = {}, Sharing(), {}
        self.near_misses.clear()
        self.suggestions = Suggestions()

    def missed(self, name: str) -> list[NearMiss]:
        """The remembered near misses of an entry, also those counted for another that fits no better."""
        current = next((slot for slot in self._slots.values() if name in slot.names), None)
        found = (_as_of(name, current, miss) for miss in self.near_misses)
        return [miss for miss in found if miss is not None]

    def request(self, request: LiveRequest) -> None:
        """Account for one."""
        self.listeners.tell(request)
        self.counts.requests += 1
        slot = self._slots.get(request.key) if request.key is not None else None
        if slot is not None:
            # Otherwise the server's own cache had more of it: it would have served it without us.
            saved = len(slot.prefix) if request.warm >= len(slot.prefix) else 0
            slot.hits += 1
            slot.tokens_saved += saved
            slot.last_hit_at = time()
            self.counts.hits += 1
            self.counts.tokens_saved += saved
            self._tell.hit(slot, request)
            return
        self.suggestions.count(request)
        self._look_for_near_miss(request)

    def _look_for_near_miss(self, request: LiveRequest) -> None:
        node, matched = self._sharing.walk(request.tokens)
        key = self._shortest_beyond(node, matched)
        if key is None or not is_near(matched, len(self._slots[key].prefix)):
            return
        slot = self._slots[key]
        slot.near_misses += 1
        self.counts.near_misses += 1
        self.near_misses.append(NearMiss(slot.names[0], time(), matched, slot, request))
        self._tell.near_miss(slot, request, matched)

    def _shortest_beyond(self, node: Node[int], matched: int) -> str | None:
        """Of the entries that go on from where a request parts from them, that of which most was there."""
        place = node, matched < node.end
        if place not in self._nearest:
            # Once for each place: hundreds of entries may begin alike.
            ends = (below for below in node if below.end > matched and below.key in self._slots)
            found = min(ends, key=lambda below: below.end, default=None)
            self._nearest[place] = found.key if found is not None else None
        return self._nearest[place]


def _as_of(name: str, current: Slot | None, miss: NearMiss) -> NearMiss | None:
    """A near miss as that of an entry, of which `current` is the prefix now; None where it is none."""
    if name in miss.slot.names:
        return replace(miss, entry=name)
    if current is None:
        return None
    matched = common_length(current.prefix.packed, miss.request.tokens)
    if matched < miss.matched or not is_near(matched, len(current.prefix)):
        return None
    return replace(miss, entry=name, matched=matched, slot=current, counted_for=miss.entry)


def is_near(matched: int, size: int) -> bool:
    """True when a request that shares so many tokens with a prefix of this size was meant for it."""
    return max(NEAR_LEAST, min(NEAR_TOKENS, size / 10)) <= matched < size


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A beginning that is prefilled cold again and again.

    Attributes:
        key: Hash of its tokens.
        tokens: Its length, in whole blocks.
        times: Requests that began with it.
    """

    key: str
    tokens: int
    times: int


class Suggestions:
    """Counts cold beginnings by their hashes; no text and no token is kept."""

    BLOCK = 256
    TIMES = 3
    KEPT = 4096

    def __init__(self) -> None:
        # Length, times and the next shorter beginning, by hash.
        self._counts: OrderedDict[str, tuple[int, int, str]] = OrderedDict()
        # The beginnings of each wanted prefix, by its key, and how many prefixes have each of them.
        self._wanted: dict[str, tuple[str, ...]] = {}
        self._covered: Counter[str] = Counter()

    def follow(self, wanted: Mapping[str, Tokens]) -> None:
        """From now on what these prefixes begin with is no suggestion; only what is new is looked at."""
        for key in self._wanted.keys() - wanted.keys():
            for beginning in self._wanted.pop(key):
                self._covered[beginning] -= 1
                if not self._covered[beginning]:
                    del self._covered[beginning]
        for key in wanted.keys() - self._wanted.keys():
            # A prefix of whole blocks leaves nothing over, and is one of its own beginnings all the same.
            found = _beginnings(wanted[key], self.BLOCK, leaving=0)
            self._wanted[key] = tuple(beginning for _, beginning in found)
            self._covered.update(self._wanted[key])

    def count(self, request: LiveRequest) -> None:
        """Count the beginnings of a request that were in no cache."""
        shorter = ""
        for end, key in _beginnings(request.tokens, self.BLOCK):
            if end > request.cached:
                times = self._counts.pop(key)[1] if key in self._counts else 0
                self._counts[key] = end, times + 1, shorter
            shorter = key
        while len(self._counts) > self.KEPT:
            self._counts.popitem(last=False)

    def found(self) -> list[Suggestion]:
        """Beginnings that came often enough: of those that came together the longest, most often first."""
        often = self._often()
        covered = {
            shorter
            for key, item in often.items()
            if (shorter := self._counts[key][2]) in often and often[shorter].times == item.times
        }
        found = [item for key, item in often.items() if key not in covered]
        return sorted(found, key=lambda item: (-item.times, -item.tokens))

    def _often(self) -> dict[str, Suggestion]:
        return {
            key: Suggestion(key, end, times)
            for key, (end, times, _) in self._counts.items()
            if times >= self.TIMES and key not in self._covered
        }

    def longest_of(self, request: LiveRequest) -> Suggestion | None:
        """The longest of them that a request begins with."""
        found = self._often()
        keys = [key for _, key in _beginnings(request.tokens, self.BLOCK) if key in found]
        return found[keys[-1]] if keys else None


def _beginnings(tokens: Tokens, block: int, leaving: int = 1) -> Iterator[tuple[int, str]]:
    """Length and hash of every whole-block beginning that leaves so many tokens over."""
    chained = hashlib.sha256()
    for end in range(block, len(tokens) - leaving + 1, block):
        chained.update(tokens[end - block : end])
        yield end, chained.hexdigest()
