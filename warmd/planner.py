"""Makes plans from what the ledger wants and what the engine holds, and tells the engine what is to come."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from warmd.admission import EntryCost, Room, admit, entry_costs
from warmd.engines.base import Engine, Foreseen
from warmd.ledger import Ledger
from warmd.memory.readings import Memory
from warmd.plan import Plan, make_plan
from warmd.prompts.document import Document
from warmd.radix import Sharing
from warmd.warming import Warmer


class Planner:
    """Plans for one identity of an engine.

    Args:
        engine: Where to warm.
        ledger: What is known of each prefix.
    """

    def __init__(self, engine: Engine, ledger: Ledger) -> None:
        self._engine = engine
        self._ledger = ledger
        self._sharing = Sharing()
        # Not even that nothing is wanted has been told.
        self._declared: frozenset[str] | None = None

    def make(self, document: Document, warmer: Warmer, memory: Memory | None) -> Plan:
        """What is to be done now.

        Args:
            document: What is wanted.
            warmer: Knows what goes on.
            memory: What there is; None where it is no concern.
        """
        now, held = anyio.current_time(), warmer.held()
        wanted = self._ledger.wanted(document, now)
        plan = make_plan(
            wanted,
            # What was held in the moment in which its warming was stopped has not been proved.
            held.keys() - self._ledger.unproved(),
            in_flight=warmer.in_flight,
            # What is freed first may be wrong: not even its files are to be used before.
            waiting=self._ledger.waiting(now).keys() | warmer.freeing,
            previous=self._ledger.previous(held),
        )
        if memory is None:
            return plan
        room = Room(
            memory=memory,
            cost=self._engine.cost(),
            prefixes=self._ledger.prefixes(),
            held=frozenset(held),
            in_flight=self._ledger.left(warmer.in_flight),
            is_freeing=bool(warmer.freeing),
            sharing=self._sharing,
        )
        return admit(plan, wanted, room)

    def costs(self, plan: Plan) -> list[EntryCost]:
        """What each prefix that the plan warms, or puts off for want of memory, takes."""
        return entry_costs(plan, self._ledger.prefixes(), self._engine.cost(), self._sharing)

    def foresee(self, costs: Sequence[EntryCost], warmer: Warmer) -> Foreseen:
        """What warming these will take together, once what is being warmed is warm."""
        prefixes = self._ledger.prefixes()
        first = [prefixes[key] for key in warmer.in_flight if key in prefixes]
        wanted = [(prefix, len(prefix)) for prefix in first]
        wanted += [(prefixes[cost.key], cost.tokens - cost.own) for cost in costs if cost.fits]
        found = self._engine.foresee(wanted)[len(first) :]
        return Foreseen(sum(each.new_tokens for each in found), sum(each.disk_tokens for each in found))

    def declare(self, plan: Plan) -> None:
        """Tell the engine what is to be held, so that what prefixes share is there once."""
        dropped = {drop.key for drop in plan.drop}
        # What waits for the pressure to go keeps what has been done of it; what lacks bytes does not.
        lacking = {key for key, shortage in plan.short.items() if shortage.needed or key in dropped}
        # Likewise what waits until it is tried again: what it had done would be in the way of others.
        waiting = (self._ledger.slots[item.key] for item in plan.defer)
        lacking |= {slot.prefix.key for slot in waiting if slot.state == "deferred" and slot.needed}
        declared = frozenset(self._ledger.slots) - lacking
        if declared != self._declared:
            self._declared = declared
            slots = self._ledger.slots.items()
            self._engine.declare([slot.prefix for key, slot in slots if key in declared])
