"""Which of the prefixes that a plan would warm fit into memory: a pure function over frozen values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from warmd.engines.base import Prefix
from warmd.memory.cost import Cost
from warmd.memory.readings import Memory
from warmd.memory.size import format_size
from warmd.plan import Drop, Plan, Shortage, Wanted, distinct_prefixes
from warmd.radix import Sharing, Trial

WARNING, CRITICAL = 2, 4
"""Levels of memory pressure: from the first on nothing is warmed, at the second memory is given back."""

FOR_REPLACEMENT = "there is no room for it beside what replaces it"
FOR_PRIORITY = "an entry of higher priority needs the room"
FOR_LIMIT = "the process is over its memory limit"
FOR_SYSTEM = "the system is critically short of memory"
SHORT_OF_MEMORY = "the system is short of memory"


@dataclass(frozen=True, slots=True)
class Room:
    """What there is, and what things cost.

    Attributes:
        memory: As it is now.
        cost: Of state; None while it is not known: then whatever there is is taken to be enough.
        prefixes: Of every key in the plan.
        held: The keys whose state is there now.
        in_flight: The keys that are being warmed, each with the part that is still to be computed, 0 to 1.
        is_freeing: True while something is about to be freed, which the memory does not show yet.
        sharing: Where tokens are counted; kept from plan to plan, it is quick.
    """

    memory: Memory
    cost: Cost | None
    prefixes: Mapping[str, Prefix]
    held: Collection[str]
    in_flight: Mapping[str, float] = field(default_factory=dict)
    is_freeing: bool = False
    sharing: Sharing = field(default_factory=Sharing, compare=False)

    def count(self, keys: Iterable[str]) -> Sharing:
        """Count the tokens of these."""
        self.sharing.become({key: self.prefixes[key].packed for key in keys})
        return self.sharing


@dataclass(frozen=True, slots=True)
class EntryCost:
    """What one prefix takes.

    Attributes:
        key: The prefix.
        tokens: Its length.
        own: Tokens that neither what is held nor what is warmed before it begins with.
        kv_bytes: What holding it takes besides those, or None while the cost is not known.
        fits: False when it is put off for want of memory.
    """

    key: str
    tokens: int
    own: int
    kv_bytes: int | None
    fits: bool


def entry_costs(
    plan: Plan, prefixes: Mapping[str, Prefix], cost: Cost | None, sharing: Sharing | None = None
) -> list[EntryCost]:
    """What each prefix that a plan warms, or puts off for want of memory, will take, in the plan's order.

    Args:
        plan: The plan.
        prefixes: Of every key in it.
        cost: Of state, or None while it is not known.
        sharing: Where tokens are counted; see `Room`.
    """
    sharing = sharing or Sharing()
    sharing.become({key: prefixes[key].packed for key in _serving(plan)})
    found: list[EntryCost] = []
    with sharing.trial() as trial:
        for item in (*plan.warm, *(item for item in plan.defer if item.key in plan.short)):
            packed = prefixes[item.key].packed
            own, fits = trial.add(packed), item.key not in plan.short
            if not fits:
                # What follows cannot share what is not there.
                trial.remove(packed)
            kv_bytes = cost.kept(own, item.tokens) if cost is not None else None
            found.append(EntryCost(item.key, item.tokens, own, kv_bytes, fits))
    return found


def is_too_much(memory: Memory) -> bool:
    """True when something has to be given back, or nothing may be taken."""
    return memory.pressure >= WARNING or memory.excess > 0


def admit(plan: Plan, wanted: Sequence[Wanted], room: Room) -> Plan:
    """Take out of a plan what does not fit now, and put into it what has to make room.

    Higher priority goes first, then file order; what is smaller may fit where something larger did not. A
    prefix of lower priority makes room for one of higher priority, and the old prefix of an edited entry for
    the new one, but only where that is enough.

    Args:
        plan: See `warmd.plan.make_plan`.
        wanted: What it was made from.
        room: Memory and costs.
    """
    memory = room.memory
    if memory.blocked is not None or memory.pressure >= WARNING:
        reason = memory.blocked or SHORT_OF_MEMORY
        plan = _defer(plan, wanted, {item.key: Shortage(0, 0, reason) for item in plan.warm})
        return _shed(plan, wanted, room) if memory.error is None else plan
    with room.count(_serving(plan)).trial() as trial:
        admitted = _Admission(plan, wanted, room, trial).run()
    return _shed(admitted, wanted, room)


class _Admission:
    """One pass over what a plan would warm."""

    def __init__(self, plan: Plan, wanted: Sequence[Wanted], room: Room, sharing: Trial) -> None:
        self._plan = plan
        self._wanted = wanted
        self._room = room
        self._cost = room.cost or Cost(0)
        self._available = room.memory.available - self._promised()
        self._drops = {drop.key: drop for drop in plan.drop}
        self._sharing = sharing
        self._lowest = _lowest_first(plan, wanted, room)
        self._short: dict[str, Shortage] = {}

    def _promised(self) -> int:
        """What the warmings under way will still take."""
        prefixes = ((self._room.prefixes[key], left) for key, left in self._room.in_flight.items())
        return sum(int(self._cost.peak(len(prefix)) * left) for prefix, left in prefixes)

    def run(self) -> Plan:
        for item in self._plan.warm:
            self._consider(item)
        drops = tuple(self._drops[key] for key in sorted(self._drops))
        return _defer(replace(self._plan, drop=drops), self._wanted, self._short)

    def _consider(self, item: Wanted) -> None:
        packed = self._room.prefixes[item.key].packed
        own = self._sharing.add(packed)
        kept = self._cost.kept(own, item.tokens)
        needed = max(kept, self._cost.peak(item.tokens), item.needed)
        missing = needed - self._available
        if missing > 0 and not self._make_room(item, missing):
            self._sharing.remove(packed)
            self._short[item.key] = self._shortage(needed)
            return
        self._available -= kept

    def _make_room(self, item: Wanted, missing: int) -> bool:
        """Free what may go for it, if that is enough."""
        chosen: list[Drop] = []
        freed = 0
        for drop in self._candidates(item):
            prefix = self._room.prefixes[drop.key]
            freed += self._cost.kept(self._sharing.remove(prefix.packed), len(prefix))
            chosen.append(drop)
            if freed >= missing:
                self._drops |= {drop.key: drop for drop in chosen}
                gone = {drop.key for drop in chosen}
                self._lowest = [other for other in self._lowest if other.key not in gone]
                self._short |= {
                    drop.key: self._evicted(drop) for drop in chosen if drop.key in self._plan.keep
                }
                self._available += freed
                return True
        for drop in chosen:
            self._sharing.add(self._room.prefixes[drop.key].packed)
        return False

    def _candidates(self, item: Wanted) -> Iterator[Drop]:
        for drop in self._drops.values():
            if drop.after == item.key:
                yield Drop(drop.key, None, FOR_REPLACEMENT)
        for other in self._lowest:
            if other.priority < item.priority:
                yield Drop(other.key, None, FOR_PRIORITY)

    def _evicted(self, drop: Drop) -> Shortage:
        return Shortage(self._cost.peak(len(self._room.prefixes[drop.key])), 0, drop.reason or "")

    def _shortage(self, needed: int) -> Shortage:
        memory, available = self._room.memory, max(0, self._available)
        # What is being warmed just now would be taken for lost.
        if needed > memory.most and not self._room.in_flight:
            text = (
                f"can never fit under the limit of {format_size(memory.limit)}: needs {format_size(needed)}, "
            )
            return Shortage(needed, available, f"{text}there would be {format_size(max(0, memory.most))}")
        text = f"needs {format_size(needed)}, {format_size(available)} are available"
        if 0 < needed - available <= memory.ordinary:
            text += f"; the server's own prompt cache holds {format_size(memory.ordinary)}"
        return Shortage(needed, available, text)


def _shed(plan: Plan, wanted: Sequence[Wanted], room: Room) -> Plan:
    """Free the lowest priorities when too much is taken: all that is over the limit, half of all at worst."""
    memory = room.memory
    if room.cost is None or room.is_freeing:
        return plan
    # What is being warmed gives itself up at its next chunk.
    giving_up = sum(room.cost.peak(len(room.prefixes[key])) for key in room.in_flight)
    excess, reason = memory.excess - giving_up, FOR_LIMIT
    if memory.pressure >= CRITICAL:
        excess, reason = max(excess, memory.warm // 2), FOR_SYSTEM
    if excess <= 0:
        return plan
    obsolete = [drop.key for drop in plan.drop if drop.after is not None]
    # What an edit has left goes before anything that is wanted.
    candidates = (*obsolete, *(item.key for item in _lowest_first(plan, wanted, room)))
    drops: dict[str, Drop] = {}
    with room.count(_serving(plan)).trial() as sharing:
        for key in candidates:
            if excess <= 0:
                break
            drops[key] = Drop(key, None, reason)
            prefix = room.prefixes[key]
            excess -= room.cost.kept(sharing.remove(prefix.packed), len(prefix))
    peak = room.cost.peak
    short = {key: Shortage(peak(len(room.prefixes[key])), 0, reason) for key in drops if key not in obsolete}
    others = (drop for drop in plan.drop if drop.key not in drops)
    return _defer(replace(plan, drop=(*others, *drops.values())), wanted, short)


def _serving(plan: Plan) -> list[str]:
    """What requests are served from while the plan is carried out."""
    return [*plan.keep, *(drop.key for drop in plan.drop if drop.after is not None)]


def _lowest_first(plan: Plan, wanted: Sequence[Wanted], room: Room) -> list[Wanted]:
    """What is held and stays, those first that would have to go first."""
    kept = set(plan.keep) & set(room.held)
    return [item for item in reversed(distinct_prefixes(wanted)) if item.key in kept]


def _defer(plan: Plan, wanted: Sequence[Wanted], short: Mapping[str, Shortage]) -> Plan:
    """Move what is short of memory from `keep` and `warm` to `defer`."""
    moved = [item for item in distinct_prefixes(wanted) if item.key in short]
    return replace(
        plan,
        keep=tuple(key for key in plan.keep if key not in short),
        warm=tuple(item for item in plan.warm if item.key not in short),
        defer=(*plan.defer, *moved),
        short={**plan.short, **short},
    )
