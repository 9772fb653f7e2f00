"""The memory guard of several ranks: what does not fit on one of them fits on none."""

from __future__ import annotations

from collections.abc import Callable

from warmd.engines.base import NoRoomError
from warmd.engines.mlx_lm.guard import Guard
from warmd.engines.mlx_lm.ranks import Ranks
from warmd.memory.readings import Limit, Meter


class SharedGuard(Guard):
    """A guard that decides what its ranks agree on. See `Guard` for everything else.

    Args:
        limit: Of this rank's machine.
        ranks: All have to ask the same at the same time.
        meter: How to look.
    """

    def __init__(self, limit: Limit, ranks: Ranks, meter: Meter | None = None) -> None:
        super().__init__(limit, meter)
        self._ranks = ranks

    def admit(self, tokens: int) -> None:
        """Before the first chunk of a prefix.

        Raises:
            NoRoomError: Warming so many tokens would not fit on some rank.
        """

        def ask() -> int:
            Guard.admit(self, tokens)
            return 1

        self._agree(ask)

    def chunk(self, done: int, size: int) -> int:
        """How many tokens to compute at once: the fewest that any rank says, whatever else makes them few.

        Raises:
            NoRoomError: Not even a small chunk fits on some rank.
        """
        return self._agree(lambda: Guard.chunk(self, done, size))

    def has_room(self, size: int) -> bool:
        """True when every rank may take so many bytes now."""
        return all(has for (has,) in self._ranks.gather(int(super().has_room(size))))

    def _agree(self, ask: Callable[[], int]) -> int:
        """The least that any rank answers, of at least one.

        Raises:
            NoRoomError: Some rank has no room; the same rank's everywhere.
        """
        shortage: NoRoomError | None = None
        try:
            own = (ask(), 0, 0)
        except NoRoomError as error:
            shortage = error
            own = (0, error.needed, error.available)
        answers = self._ranks.gather(*own)
        short = [rank for rank, (answer, _, _) in enumerate(answers) if answer == 0]
        if not short:
            return min(answer for answer, _, _ in answers)
        if shortage is not None and short[0] == self._ranks.rank:
            raise shortage
        _, needed, available = answers[short[0]]
        raise NoRoomError(needed, available, None if needed else f"rank {short[0]} is short of memory")
