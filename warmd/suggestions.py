"""Beginnings that nobody declared, and that requests bring cold again and again."""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from warmd.engines.base import LiveRequest
from warmd.radix import Tokens


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
