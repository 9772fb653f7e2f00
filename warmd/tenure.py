"""One model's time in the engine: what is known of each entry with it, and what is done about that."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from warmd.clock import Clock
from warmd.crash.quarantine import Quarantine
from warmd.engines.base import Engine, Identity, Reported
from warmd.errors import ElsewhereError
from warmd.ledger import Ledger, Slot
from warmd.losses import Losses
from warmd.memory.readings import Memory
from warmd.plan import Plan
from warmd.planner import Planner
from warmd.prompts.document import Document, Entry
from warmd.renders import Renders
from warmd.tell import Teller
from warmd.warming import Warmer


class Tenure:
    """From the moment in which a model is there until it is another. Then it is replaced, and never reset.

    Args:
        identity: The model.
        engine: Where it is.
        clock: The local time.
        tell: Receives what happens.
        quarantine: What ended the process before.
        losses: Accounts for what is warm no longer.
        make_warmer: Makes who carries plans out.

    Attributes:
        ledger: What is known of each prefix.
        renders: What the entries render to.
        warmer: Who carries plans out.
    """

    def __init__(
        self,
        identity: Identity,
        engine: Engine,
        clock: Clock,
        tell: Teller,
        quarantine: Quarantine,
        losses: Losses,
        make_warmer: Callable[[Identity, Ledger], Warmer],
    ) -> None:
        self.identity = identity
        self.ledger = Ledger()
        self.renders = Renders(engine, identity, clock)
        self.warmer = make_warmer(identity, self.ledger)
        self._planner = Planner(engine, self.ledger)
        self._tell = tell
        self._quarantine = quarantine
        self._losses = losses

    # --- read, plan, apply -----------------------------------------------------------------------

    def take_over(self, document: Document) -> None:
        """Bring the ledger up to a document, which has been rendered, and to what the engine holds."""
        before, warm_before = self.ledger.problems, self.ledger.warm_names()
        self.ledger.update(document, self.renders.found)
        for name, error in self.ledger.problems.items():
            is_news = str(before.get(name)) != str(error) and not isinstance(error, ElsewhereError)
            # Of a model that nothing can be kept warm for that has been told once.
            if is_news and self.identity.unwarmable is None:
                self._tell.problem(name, error)
        held = self.warmer.held()
        for key, slot in self.ledger.slots.items():
            if slot.state == "pending":
                self._keep_away(key, slot)
            if slot.state in ("warm", "stored_not_served") and key not in held:
                self._losses.note(slot, warm_before, "the engine no longer holds it")
            elif slot.state == "warm":
                # Entries that came to share a prefix which is warm are warm without any work.
                warmed = Reported(slot.tokens, 0, slot.tokens, held[key].kv_bytes)
                self._tell.warmed(warmed, 0.0, [n for n in slot.names if n not in warm_before])

    def _keep_away(self, key: str, slot: Slot) -> None:
        """Put a prefix that ended the process too often aside."""
        reason = self._quarantine.reason(key, self.identity)
        if reason is not None:
            slot.mark_quarantined(reason)
            for name in slot.names:
                self._tell.failed(name, slot.state, reason)

    def plan(self, document: Document, memory: Memory | None) -> Plan:
        """Stop what is wanted no more, and see what is to be done."""
        self.warmer.cancel(self.warmer.in_flight - self.ledger.slots.keys())
        return self._planner.make(document, self.warmer, memory)

    def report(self, plan: Plan, generation: int, *, is_news: bool, is_resumed: bool) -> None:
        """Tell of a plan, unless it is as the one before.

        Args:
            plan: What is to be done.
            generation: Of the document.
            is_news: It is the first one for that document.
            is_resumed: It is the first one since warming was to go on.
        """
        is_news = is_news or any(is_resumed or item.key not in self.warmer.queued for item in plan.warm)
        # What waits for its replacement has been told when that was planned.
        is_news = is_news or any(drop.after is None for drop in plan.drop)
        if not is_news:
            return
        costs = self._planner.costs(plan)
        known = all(self.ledger.slots[cost.key].prefix.size is not None for cost in costs)
        self._tell.plan(plan, generation, self._planner.foresee(costs, self.warmer) if known else None)
        for cost in costs if known else ():
            self._tell.planned(self.ledger.slots[cost.key], cost)

    def apply(self, plan: Plan, memory: Memory | None) -> None:
        """Have a plan carried out; warming begins when the warmer is told to."""
        is_told = memory is not None and memory.blocked is not None
        for key, shortage in plan.short.items():
            self.warmer.defer(self.ledger.slots[key], shortage, is_told=is_told)
        for item in plan.warm:
            # Should it find no room after all, that is news.
            self.ledger.slots[item.key].mark_pending()
        self._planner.declare(plan)
        self.warmer.carry_out(plan)
        kept_for_now = {drop.key for drop in plan.drop}
        for key in [key for key in self.ledger.retired if key not in kept_for_now]:
            del self.ledger.retired[key]

    # --- asked for by a person -------------------------------------------------------------------

    def renew(self, entries: Iterable[Entry]) -> None:
        """Render entries anew, and free what is held of them, whatever happened to it before."""
        entries = list(entries)
        self.renders.renew(entry.digest for entry in entries)
        keys = self.ledger.keys_of([entry.name for entry in entries])
        self._quarantine.forgive(keys, self.identity)
        self.warmer.renew(keys)
