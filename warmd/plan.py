"""What to keep, warm, drop and put off: a pure function over frozen values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wanted:
    """One entry's prefix as it should be held.

    Attributes:
        name: The entry.
        key: `warmd.engines.base.Prefix.key`; entries with equal tokens share one key.
        tokens: Length of the prefix.
        priority: Higher is warmed first.
        index: File order, which breaks ties.
    """

    name: str
    key: str
    tokens: int
    priority: int = 0
    index: int = 0


@dataclass(frozen=True, slots=True)
class Drop:
    """A held prefix that nobody wants any more.

    Attributes:
        key: The prefix.
        after: Key of the prefix that replaces it. The old one serves until that is warm (make before break);
            None frees it at once.
    """

    key: str
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The difference between what is wanted and what is held, one item for each distinct prefix."""

    keep: tuple[str, ...]
    warm: tuple[Wanted, ...]
    drop: tuple[Drop, ...]
    defer: tuple[Wanted, ...]

    @property
    def new_tokens(self) -> int:
        """Tokens of the prefixes to warm: an upper bound, as an engine may reuse a beginning it holds."""
        return sum(wanted.tokens for wanted in self.warm)


def make_plan(
    wanted: Sequence[Wanted],
    held: Collection[str],
    *,
    waiting: Collection[str] = (),
    previous: Mapping[str, str] | None = None,
) -> Plan:
    """Compare what is wanted with what is held.

    Args:
        wanted: One item an entry, in any order.
        held: Keys the engine holds.
        waiting: Keys that failed and whose time to try again has not come: deferred.
        previous: Entry name to the key it had before, which tells what replaces what.

    Returns:
        keep, warm and defer part the wanted keys between them; keep and drop part the held ones.
    """
    distinct = _distinct(wanted)
    missing = [item for item in distinct if item.key not in held]
    return Plan(
        keep=tuple(item.key for item in distinct if item.key in held),
        warm=tuple(item for item in missing if item.key not in waiting),
        drop=_drops(wanted, held, previous or {}),
        defer=tuple(item for item in missing if item.key in waiting),
    )


def _distinct(wanted: Sequence[Wanted]) -> list[Wanted]:
    """The first of each key in warming order."""
    first: dict[str, Wanted] = {}
    for item in sorted(wanted, key=lambda item: (-item.priority, item.index)):
        first.setdefault(item.key, item)
    return list(first.values())


def _drops(wanted: Sequence[Wanted], held: Collection[str], previous: Mapping[str, str]) -> tuple[Drop, ...]:
    keys = {item.key for item in wanted}
    replaced_by = {
        previous[item.name]: item.key for item in wanted if item.name in previous and item.key not in held
    }
    return tuple(Drop(key, replaced_by.get(key)) for key in sorted(held) if key not in keys)
