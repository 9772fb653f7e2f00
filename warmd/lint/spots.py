"""Everything in one text that will be another in other requests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from warmd.lint.dates import find_dates
from warmd.lint.ids import find_counters, find_ids, find_tokens
from warmd.lint.spot import Spot

_REACH = 80
# What is given as an example stays as it is, whatever it looks like.
_EXAMPLE = (
    r"\be\.\s?g\.|\bi\.\s?e\.|\bexamples?\b|\bfor instance\b|\bsuch as\b|\blike\b|\bformat(?:ted|s)?\b"
    r"|\bsamples?\b|\bplaceholders?\b|\bpatterns?\b|\bregex\b|\bz\.\s?B\."
)
# What belongs to a product does as well.
_FIXED = (
    r"\bcut-?off\b|\bversions?\b|\breleased?\b|\bsince\b|\bcopyright\b|\bcommits?\b|\bsha\d*\b|\bchecksums?\b"
    r"|\bhash(?:es)?\b|\bdigests?\b|\bdeadline\b|\bborn\b|\bfounded\b"
)
_SAME_SENTENCE = r"(?:(?![.!?] [A-Z])[^\n])*$"
_IS_EXAMPLE = re.compile(f"(?i:{_EXAMPLE}){_SAME_SENTENCE}")
_IS_FIXED = re.compile(f"(?i:{_EXAMPLE}|{_FIXED}){_SAME_SENTENCE}")


def find_spots(text: str, now: datetime) -> list[Spot]:
    """What changes, in order, without overlaps.

    Args:
        text: Of a message, of a tool's description, of a template argument.
        now: The local time.
    """
    found = [*find_dates(text, now), *find_ids(text), *find_counters(text), *find_tokens(text)]
    return [spot for spot in _without_overlaps(found) if not _is_fixed(text, spot)]


def _without_overlaps(spots: Iterable[Spot]) -> list[Spot]:
    kept: list[Spot] = []
    # Of those that begin together the first kind counts.
    for spot in sorted(spots, key=lambda spot: spot.start):
        if not kept or spot.start >= kept[-1].end:
            kept.append(spot)
    return kept


def _is_fixed(text: str, spot: Spot) -> bool:
    before = text[max(0, spot.start - _REACH) : spot.start]
    return (_IS_EXAMPLE if spot.is_labelled else _IS_FIXED).search(before) is not None
