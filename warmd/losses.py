"""What was warm and is so no longer: it is warmed again, but not without end."""

from __future__ import annotations

from collections.abc import Collection

import anyio

from warmd.ledger import Slot
from warmd.tell import Teller

TOO_OFTEN = "something else takes the memory or the engine's cache; give them more room, or keep fewer"
"""What to do about an entry that is lost again and again."""


class Losses:
    """Accounts for each loss.

    Args:
        tell: Receives them.
        per_hour: So many losses of one prefix within an hour are borne.
    """

    def __init__(self, tell: Teller, per_hour: int) -> None:
        self._tell = tell
        self._per_hour = per_hour

    def note(self, slot: Slot, names: Collection[str], cause: str) -> None:
        """A prefix was lost: the next plan warms it again, unless that has come too often.

        Args:
            slot: The prefix.
            names: The entries that were warm by it.
            cause: In one line, for a person.
        """
        now = anyio.current_time()
        slot.mark_pending()
        self._tell.lost(slot, names, cause)
        not_before = slot.note_loss(now, self._per_hour)
        if not_before is None:
            return
        reason = f"lost more than {self._per_hour} times within an hour: {TOO_OFTEN}"
        slot.mark_failed(reason, not_before=not_before)
        for name in slot.names:
            self._tell.failed(name, "failed", reason, retry_in=round(not_before - now, 3))
