"""The desk of several ranks: rank 0 picks what is done next, and all of them do it."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warmd.engines.base import NoRoomError
from warmd.engines.mlx_lm.desk import Desk, Job, abandon, forget_frames
from warmd.engines.mlx_lm.ranks import Ranks


class RankError(Exception):
    """A step has failed on this rank: the others wait in the midst of theirs, and the job has to end."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"a step of warming failed with {type(error).__name__}")


@dataclass(frozen=True, slots=True)
class Turn:
    """What is done next.

    Attributes:
        number: Of the job.
        is_abandoned: Abandon it, in place of a step.
        order: What the job is made of, when it is spoken of for the first time.
    """

    number: int
    is_abandoned: bool
    order: Any = None


class SharedDesk(Desk):
    """A desk that all ranks step at the same places. Jobs are submitted on rank 0.

    A job without an order concerns rank 0 alone.

    Args:
        ranks: Who they are.

    Attributes:
        make_job: Makes a job of an order, on the other ranks.
    """

    def __init__(self, ranks: Ranks) -> None:
        super().__init__()
        self._ranks = ranks
        self._numbers = itertools.count()
        self._followed: dict[int, Job[Any]] = {}
        self.make_job: Callable[[Any], Job[Any]] | None = None

    def begin_round(self, *, stop: bool = False) -> bool:
        """While there is nothing to do for rank 0, nobody is asked before each token what is to be done."""
        ((stops, has_jobs), *_) = self._ranks.gather(int(stop), int(self.has_jobs))
        self.is_resting = not has_jobs
        return bool(stops)

    def step(self) -> bool:
        """Do one step of what rank 0 picks; on rank 0, False when there was nothing to do."""
        if not self._ranks.leads:
            return self._follow(self._ranks.share(None))
        if super().step():
            return True
        self.rest()
        return False

    def rest(self) -> None:
        """Do nothing this time, on rank 0; the others do likewise."""
        self._ranks.share(None)

    def fail_all(self, error: Exception) -> None:
        """Fail everything that is queued, here and on the other ranks, which come to the same place."""
        self._followed.clear()
        super().fail_all(error)

    def _act(self, queue: deque[Job[Any]], *, is_abandoned: bool) -> None:
        self._ranks.share(self._turn(queue[0], is_abandoned=is_abandoned))
        super()._act(queue, is_abandoned=is_abandoned)

    def _turn(self, job: Job[Any], *, is_abandoned: bool) -> Turn | None:
        if job.order is None:
            return None
        if job.number is not None:
            return Turn(job.number, is_abandoned)
        job.number = next(self._numbers)
        return Turn(job.number, is_abandoned, job.order)

    def _failed(self, job: Job[Any], error: Exception) -> None:
        if job.order is not None and not isinstance(error, NoRoomError):
            # Whoever waits for it hears that the engine has died, as all others do.
            forget_frames(error)
            raise RankError(error) from None
        super()._failed(job, error)

    def _follow(self, turn: Turn | None) -> bool:
        if turn is None:
            return False
        job = self._followed.pop(turn.number, None)
        if job is None and self.make_job is not None:
            job = self.make_job(turn.order)
        if job is None:
            raise RankError(LookupError())
        if turn.is_abandoned:
            abandon(job)
        elif not _is_done(job):
            self._followed[turn.number] = job
        return True


def _is_done(job: Job[Any]) -> bool:
    try:
        return job.step() is not None
    except NoRoomError:
        # So it is on rank 0.
        return True
    except Exception as error:  # noqa: BLE001 - whatever it was, the ranks are not together any more
        raise RankError(error) from None
