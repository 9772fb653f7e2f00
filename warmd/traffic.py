"""What live requests make of the entries: hits and near misses.

An engine tells a request's tokens and how many of them it does not prefill. Whose they are is found out here,
in one way for every engine: an entry has a hit where a request begins with all of its tokens and none of
those is prefilled, whatever state they came from.
"""

from __future__ import annotations

from collections import deque
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
from warmd.status import SERVED, LiveCounts
from warmd.suggestions import Suggestions

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


class Prefixes:
    """Prefixes of entries, found by the tokens that requests begin with."""

    def __init__(self) -> None:
        self._slots: Mapping[str, Slot] = {}
        self._sharing = Sharing()
        self._nearest: dict[tuple[Node[int], bool], str | None] = {}

    def become(self, slots: Mapping[str, Slot]) -> None:
        """From now on these, by key; what is taken out of the mapping is not found any more."""
        self._sharing.become({key: slot.prefix.packed for key, slot in slots.items()})
        self._slots, self._nearest = slots, {}

    def longest(self, tokens: Tokens, at_most: int) -> Slot | None:
        """The longest that some tokens begin with all of, of no more than `at_most` tokens."""
        node, matched = self._sharing.walk(tokens)
        end = min(matched, at_most)
        keys = (above.key for above in reversed(node.path()) if above.end <= end)
        return next((self._slots[key] for key in keys if key in self._slots), None)

    def parted(self, tokens: Tokens) -> tuple[Slot | None, int]:
        """Of those that go on from where some tokens part from them the shortest, and where that is."""
        node, matched = self._sharing.walk(tokens)
        place = node, matched < node.end
        if place not in self._nearest:
            # Once for each place: hundreds of entries may begin alike.
            ends = (below for below in node if below.end > matched and below.key in self._slots)
            found = min(ends, key=lambda below: below.end, default=None)
            self._nearest[place] = found.key if found is not None else None
        key = self._nearest[place]
        return (self._slots[key] if key is not None else None), matched


class Traffic:
    """Accounts for each live request.

    Args:
        tell: Who is told.
    """

    def __init__(self, tell: Reporter) -> None:
        self._tell = tell
        self._wanted, self._retired = Prefixes(), Prefixes()
        self._slots: Mapping[str, Slot] = {}
        self.near_misses: deque[NearMiss] = deque(maxlen=REMEMBERED)
        self.suggestions = Suggestions()
        self.listeners = Listeners()
        self.counts = LiveCounts()

    def follow(self, wanted: Mapping[str, Slot], retired: Mapping[str, Slot] | None = None) -> None:
        """From now on these are the prefixes, by key.

        Args:
            wanted: Of the entries as they are.
            retired: What entries were before, as long as that is kept; looked at anew for each request.
        """
        self._wanted.become(wanted)
        self._retired.become(retired if retired is not None else {})
        self.suggestions.follow({key: slot.prefix.packed for key, slot in wanted.items()})
        self._slots = wanted

    def forget(self) -> None:
        """Start over: another model has other tokens."""
        self._wanted, self._retired, self._slots = Prefixes(), Prefixes(), {}
        self.near_misses.clear()
        self.suggestions = Suggestions()

    def missed(self, name: str) -> list[NearMiss]:
        """The remembered near misses of an entry, also those counted for another that fits no better."""
        current = next((slot for slot in self._slots.values() if name in slot.names), None)
        found = (_as_of(name, current, miss) for miss in self.near_misses)
        return [miss for miss in found if miss is not None]

    def hit(self, request: LiveRequest) -> Slot | None:
        """The longest prefix that a request begins with all of, without any of it being prefilled."""
        return self._wanted.longest(request.tokens, request.cached)

    def request(self, request: LiveRequest) -> None:
        """Account for one."""
        self.listeners.tell(request)
        self.counts.requests += 1
        slot = self.hit(request)
        if slot is not None:
            self._count_hit(slot, request)
            return
        self.suggestions.count(request)
        if not self._is_whole(request):
            self._look_for_near_miss(request)

    def _count_hit(self, slot: Slot, request: LiveRequest) -> None:
        # Otherwise the server's own cache had more of it, or the state is that of another entry.
        is_own = request.warm >= len(slot.prefix) and slot.state in SERVED
        saved = len(slot.prefix) if is_own else 0
        slot.hits += 1
        slot.tokens_saved += saved
        slot.last_hit_at = time()
        self.counts.hits += 1
        self.counts.tokens_saved += saved
        self._tell.hit(slot, request)

    def _is_whole(self, request: LiveRequest) -> bool:
        """True where it has all of an entry, or begins from all of what one was and is still kept for."""
        entry = self._wanted.longest(request.tokens, len(request.tokens))
        return entry is not None or self._retired.longest(request.tokens, request.cached) is not None

    def _look_for_near_miss(self, request: LiveRequest) -> None:
        slot, matched = self._wanted.parted(request.tokens)
        if slot is None or not is_near(matched, len(slot.prefix)):
            return
        slot.near_misses += 1
        self.counts.near_misses += 1
        self.near_misses.append(NearMiss(slot.names[0], time(), matched, slot, request))
        self._tell.near_miss(slot, request, matched)


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
