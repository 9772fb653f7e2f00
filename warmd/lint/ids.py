"""Ids of requests and sessions, counters, and tokens that look random."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from warmd.lint.spot import Spot

_UUID = re.compile(
    r"(?<![\w/.-])[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}(?![\w/-])",
    re.IGNORECASE,
)
# Those that specifications and manuals show.
_WELL_KNOWN = ("123e4567-e89b", "550e8400-e29b", "f81d4fae-7dec", "6ba7b81", "a0eebc99-9c0b")
_RUN = re.compile(r"0123|1234|2345|3456|abcd|bcde|cdef")

_LABELLED_ID = re.compile(
    r"\b(?:x-)?(?:request|session|trace|span|correlation|conversation|transaction|invocation|interaction)"
    r"[ _-]?(?:id|uuid|identifier)\b[\"'*`]{0,3}\s?(?:is|[:=])\s{0,2}[\"'*`]{0,3}(?P<value>[\w.:-]{8,80})",
    re.IGNORECASE,
)
_TRACEPARENT = re.compile(r"(?<![\w-])(?P<value>00-[0-9a-f]{32}-[0-9a-f]{16}-0[01])(?![\w-])")
_PREFIXED_ID = re.compile(
    r"(?<![\w/.-])(?P<value>(?:req|request|sess|session|trace|span|run|conv|thread|chatcmpl|resp|msg)[_-]"
    r"[A-Za-z0-9]{12,64})(?![\w/-])"
)
_LABELLED_TOKEN = re.compile(
    r"\b(?:nonce|cache[ _-]?bust(?:er)?|csrf[ _-]?token|session[ _-]?token|session[ _-]?key|salt)\b"
    r"[\"'*`]{0,3}\s?(?:is|[:=])\s{0,2}[\"'*`]{0,3}(?P<value>[\w+/=-]{8,200})",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"(?<![\w/.@#:=?&%+-])[A-Za-z0-9_-]{20,200}(?![\w/.@=+-])")

_COUNTED = r"(?:request|message|turn|invocation|iteration|interaction|query)"
_SPENT = r"(?:tokens|requests|messages|turns|calls|credits|budget|quota)"
_COUNTER = re.compile(
    rf"\b{_COUNTED}\s?#\d{{2,9}}\b"
    rf"|\b{_COUNTED}[ _-](?:no\.?|number|count(?:er)?|index)\s?(?:is|[:=])\s?\d{{1,9}}\b"
    rf"|\b{_SPENT}[ _](?:used|left|remaining|consumed)(?: so far)?\s?[:=]\s?\$?\d[\d,.]*"
    rf"|\b(?:used|remaining)[ _]{_SPENT}\s?[:=]\s?\$?\d[\d,.]*"
    rf"|\b(?:you have|there are|with)(?: used)? \d[\d,]* {_SPENT} (?:left|remaining|so far)\b"
    r"|\b(?:uptime|counter|sequence number)\s?[:=]\s?\d{2,}",
    re.IGNORECASE,
)
# What is said of a case is no count: "if you have 500 tokens left".
_CASE = re.compile(
    r"\b(?:if|when|whenever|once|until|unless|than|assume|suppose)\b[^.\n]{0,25}$", re.IGNORECASE
)


def find_ids(text: str) -> Iterator[Spot]:
    """What names one request or session."""
    for match in _UUID.finditer(text):
        value = match[0].lower()
        if not value.startswith(_WELL_KNOWN) and _is_drawn(value):
            yield Spot(match.start(), match.end(), "a UUID")
    for pattern in (_LABELLED_ID, _TRACEPARENT, _PREFIXED_ID):
        for match in pattern.finditer(text):
            if _digits(match["value"]) >= 3 and _is_drawn(match["value"]):
                yield Spot(*match.span("value"), "the id of a request or session", is_labelled=True)


def find_counters(text: str) -> Iterator[Spot]:
    """What counts requests, or what they have used."""
    for match in _COUNTER.finditer(text):
        if not _CASE.search(text[max(0, match.start() - 40) : match.start()]):
            yield Spot(match.start(), match.end(), "a counter", is_labelled=True)


def find_tokens(text: str) -> Iterator[Spot]:
    """What looks random."""
    for match in _LABELLED_TOKEN.finditer(text):
        value = match["value"]
        if _digits(value) >= 3 and _is_drawn(value):
            yield Spot(*match.span("value"), "a token that looks random")
    for match in _TOKEN.finditer(text):
        if _is_random(match[0]):
            yield Spot(match.start(), match.end(), "a token that looks random")


def _digits(value: str) -> int:
    return sum(character.isdigit() for character in value)


def _is_drawn(value: str) -> bool:
    """False for what people type as an example: 00000000, abcd1234."""
    bare = "".join(filter(str.isalnum, value.lower()))
    enough = min(8, len(bare) // 2 + 1)
    return len(set(bare)) >= enough and not _RUN.search(bare)


def _is_random(value: str) -> bool:
    """True when capitals, small letters and digits take turns more often than in any name."""
    kinds = [(c.isupper(), c.islower(), c.isdigit()) for c in value if c.isalnum()]
    if len(kinds) < 20 or _digits(value) < 3 or not any(k[0] for k in kinds) or not any(k[1] for k in kinds):
        return False
    turns = sum(left != right for left, right in pairwise(kinds))
    return turns >= 0.45 * len(kinds) and _is_drawn(value)
