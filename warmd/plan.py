"""What to keep, warm, drop and put off: a pure function over frozen values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Wanted:
    """One entry's prefix as it should be held.

    Attributes:
        name: The entry.
        key: `warmd.engines.base.Prefix.key`; entries with equal tokens share one key.
        tokens: Length of the prefix.
        priority: Higher is warmed first.
        index: File order, which breaks ties.
        needed: Bytes that it turned out to need when it last found no room.
    """

    name: str
    key: str
    tokens: int
    priority: int = 0
    index: int = 0
    needed: int = 0


@dataclass(frozen=True, slots=True)
class Drop:
    """A held prefix that nobody wants any more.

    Attributes:
        key: The prefix.
        after: Key of the prefix that replaces it, one to be warmed. The old one serves until that is warm
            (make before break); None frees it at once. Of several that replace it, the last to become warm.
        reason: Why it is freed although it is wanted or still of use; None where nobody wants it any more.
    """

    key: str
    after: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a prefix is not warmed now although it could be.

    Attributes:
        needed: Bytes that warming it takes at most; 0 where it is not by the bytes.
        available: Bytes that there are for it.
        reason: In one line, for a person.
    """

    needed: int
    available: int
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The difference between what is wanted and what is held, one item for each distinct prefix.

    Attributes:
        keep: Keys that need nothing.
        warm: To be warmed, in this order.
        drop: To be freed.
        defer: Not now.
        short: Of the deferred ones, those that wait for memory, by key.
    """

    keep: tuple[str, ...]
    warm: tuple[Wanted, ...]
    drop: tuple[Drop, ...]
    defer: tuple[Wanted, ...]
    short: Mapping[str, Shortage] = field(default_factory=dict)


def make_plan(
    wanted: Sequence[Wanted],
    held: Collection[str],
    *,
    waiting: Collection[str] = (),
    in_flight: Collection[str] = (),
    previous: Mapping[str, str] | None = None,
) -> Plan:
    """Compare what is wanted with what is held.

    Args:
        wanted: One item an entry, in any order.
        held: Keys the engine holds.
        in_flight: Keys that are being warmed: they need nothing more and so are kept, but what they replace
            still serves.
        waiting: Keys that failed and whose time to try again has not come, or that are still to be freed:
            deferred.
        previous: Entry name to the key it had before, which tells what replaces what.

    Returns:
        keep, warm and defer part the wanted keys between them; keep and drop part the held ones (and those in
        flight).
    """
    distinct = distinct_prefixes(wanted)
    has = {*held, *in_flight}
    missing = [item for item in distinct if item.key not in has]
    coming = sorted(
        (item for item in wanted if item.key in in_flight or item.key not in held),
        key=lambda item: (item.key in waiting, item.key not in in_flight, *_warming_order(item)),
    )
    return Plan(
        keep=tuple(item.key for item in distinct if item.key in has),
        warm=tuple(item for item in missing if item.key not in waiting),
        drop=_drops(wanted, has, _replacements(coming, previous or {})),
        defer=tuple(item for item in missing if item.key in waiting),
    )


def distinct_prefixes(wanted: Sequence[Wanted]) -> list[Wanted]:
    """The first of each key in warming order."""
    first: dict[str, Wanted] = {}
    for item in sorted(wanted, key=_warming_order):
        first.setdefault(item.key, item)
    return list(first.values())


def _warming_order(item: Wanted) -> tuple[int, int]:
    return -item.priority, item.index


def _replacements(ordered: Sequence[Wanted], previous: Mapping[str, str]) -> dict[str, str]:
    """Old key to the last of the keys that replace it."""
    return {previous[item.name]: item.key for item in ordered if item.name in previous}


def _drops(
    wanted: Sequence[Wanted], has: Collection[str], replacements: Mapping[str, str]
) -> tuple[Drop, ...]:
    keys = {item.key for item in wanted}
    return tuple(Drop(key, replacements.get(key)) for key in sorted(has) if key not in keys)
