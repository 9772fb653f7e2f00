"""User texts that would merge with what precedes them, read off the tokenizer's vocabulary.

A token that begins with the last characters before the user text and goes on with more is what a merge
across the boundary looks like; its continuation is the user text that asks for it. All matching happens on
raw token strings, where a byte-level tokenizer writes every byte as one printable character and
SentencePiece writes a space as ``▁``.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import TypeVar

from warmd.radix import common_length

_T = TypeVar("_T")
_DEEPEST = 8
_MARKER = re.compile(r"<(?!0x)[^<>\s]{2,}>|\[[A-Z_/]{2,}\]")
_SPACES = " \n\r\tĠĊčĉ▁"


def vocabulary_by_id(ids: Mapping[str, int]) -> tuple[str, ...]:
    """Turn a tokenizer's ``get_vocab()`` into token strings indexed by id, "" where there is none."""
    tokens = [""] * (max(ids.values(), default=-1) + 1)
    for token, index in ids.items():
        tokens[index] = token
    return tuple(tokens)


def _byte_alphabet() -> dict[str, int]:
    shown = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = (byte for byte in range(256) if byte not in shown)
    return {chr(byte): byte for byte in shown} | {chr(256 + n): byte for n, byte in enumerate(hidden)}


_BYTES = _byte_alphabet()


def raw_to_text(raw: str, *, byte_level: bool) -> str:
    """The text that a raw token string stands for; half a character at either end is left out."""
    if byte_level and all(character in _BYTES for character in raw):
        return bytes(_BYTES[character] for character in raw).decode("utf-8", "ignore")
    return raw.replace("▁", " ")


@dataclass(frozen=True, slots=True)
class Straddler:
    """A user text that may merge with the `depth` raw characters before it."""

    depth: int
    text: str


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where the user text begins, in raw token strings.

    Attributes:
        kept: Raw strings of the last tokens that are common so far.
        dropped: Raw characters between those tokens and the user text.
    """

    kept: tuple[str, ...]
    dropped: str

    @property
    def ends_in_space(self) -> bool:
        """True when whitespace precedes the cut, which a stripping special token would swallow."""
        return bool(self.kept) and self.kept[-1][-1:] in _SPACES

    @property
    def tail(self) -> str:
        """The raw characters before the user text that could take part in a merge."""
        open_end = self.dropped
        for token in reversed(self.kept):
            if len(open_end) >= _DEEPEST or _MARKER.fullmatch(token):
                break
            open_end = token + open_end
        return open_end[-_DEEPEST:]

    def tokens_within(self, depth: int) -> int:
        """How many of the kept tokens a merge that takes `depth` characters could reach."""
        reached, count = len(self.dropped), 0
        while reached < depth and count < len(self.kept):
            count += 1
            reached += len(self.kept[-count])
        return count


def find_boundary(renders: Iterable[Sequence[int]], common: int, vocabulary: Sequence[str]) -> Boundary:
    """Locate the user text in renders of texts whose first characters differ.

    `common` is the number of tokens that are known to be stable; what the renders share beyond it, as raw
    characters, precedes the user text as well.
    """

    def raw(ids: Sequence[int]) -> list[str]:
        return [vocabulary[token] if token < len(vocabulary) else "" for token in ids]

    rows = list(renders)
    texts = ["".join(raw(ids[common : common + 16])) for ids in rows]
    # What the first and the last text in order share, those between them share too.
    dropped = min(texts)[: common_length(min(texts), max(texts))]
    return Boundary(tuple(raw(rows[0][max(0, common - _DEEPEST) : common])), dropped)


def straddlers(boundary: Boundary, vocabulary: Sequence[str]) -> list[Straddler]:
    """Every text whose merge would reach into the kept tokens, the most telling first.

    Texts with different first characters come before more of the same; for each, the deepest merge first.
    """
    tail = boundary.tail
    tails = tuple(tail[-depth:] for depth in range(len(boundary.dropped) + 1, len(tail) + 1))
    if not tails:
        return []
    byte_level = any("Ġ" in token for token in vocabulary)
    # One pass over what may be 250,000 tokens, then one over the few that are left for each depth.
    matching = [token for token in vocabulary if token.startswith(tails)]
    return _interleaved([_straddlers_at(end, matching, byte_level) for end in reversed(tails)])


def _straddlers_at(end: str, tokens: Iterable[str], byte_level: bool) -> list[Straddler]:
    texts = _diverse(_continuations(end, tokens, byte_level))
    return [Straddler(len(end), text) for text in texts]


def _continuations(end: str, tokens: Iterable[str], byte_level: bool) -> Iterator[str]:
    for token in tokens:
        if token.startswith(end) and not _MARKER.fullmatch(token):
            text = raw_to_text(token[len(end) :], byte_level=byte_level)
            if text:
                yield text


def _diverse(texts: Iterable[str]) -> list[str]:
    groups: dict[str, list[str]] = defaultdict(list)
    for text in texts:
        groups[text[0]].append(text)
    return _interleaved(groups.values())


def _interleaved(rows: Iterable[Sequence[_T]]) -> list[_T]:
    """The first of every row, then the second of every row, and so on."""
    ordered = chain.from_iterable(zip_longest(*rows))
    return [item for item in ordered if item is not None]


def marker_texts(vocabulary: Sequence[str], template: str, limit: int) -> list[str]:
    """At most `limit` special tokens as user texts, those that the template uses first."""
    shaped = [token for token in vocabulary if token.startswith(("<", "[")) and token.endswith((">", "]"))]
    markers = [token for token in shaped if _MARKER.fullmatch(token)]
    # Hundreds of reserved tokens differ in a number only.
    kinds: dict[str, str] = {}
    for token in markers:
        kinds.setdefault(re.sub(r"\d+", "0", token), token)
    return sorted(kinds.values(), key=lambda token: token not in template)[:limit]
