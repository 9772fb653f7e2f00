"""Ranks that are threads of this process: they meet here in place of a network."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tests.patience import PATIENCE
from warmd.engines.mlx_lm.ranks import Ranks

T = TypeVar("T")


class Meeting:
    """Where everybody brings something and sees what all have brought."""

    def __init__(self, size: int) -> None:
        self.brought: list[Any] = [None] * size
        self.barrier = threading.Barrier(size, timeout=PATIENCE)

    def bring(self, rank: int, item: Any) -> list[Any]:
        """Wait for the others; what each has brought."""
        self.brought[rank] = item
        self.barrier.wait()
        found = list(self.brought)
        # Nobody brings the next thing before all have seen this one.
        self.barrier.wait()
        return found


class MeetingRanks(Ranks):
    """One of them."""

    def __init__(self, meeting: Meeting, size: int, rank: int) -> None:
        super().__init__(size, rank)
        self._meeting = meeting

    def share(self, item: T) -> T:
        found: T = self._meeting.bring(self.rank, item)[0]
        return found

    def gather(self, *numbers: int) -> list[tuple[int, ...]]:
        return self._meeting.bring(self.rank, numbers)


def on_ranks(*acts: Callable[[Ranks], T]) -> list[T]:
    """Let each rank do something at the same time; what they return.

    An exception of one goes to the caller.
    """
    meeting = Meeting(len(acts))

    def act(rank: int) -> T:
        try:
            return acts[rank](MeetingRanks(meeting, len(acts), rank))
        except BaseException:
            meeting.barrier.abort()
            raise

    with ThreadPoolExecutor(len(acts)) as pool:
        futures = [pool.submit(act, rank) for rank in range(len(acts))]
        errors = [error for future in futures if (error := future.exception()) is not None]
        for error in errors:
            if not isinstance(error, threading.BrokenBarrierError):
                raise error
        return [future.result() for future in futures]
