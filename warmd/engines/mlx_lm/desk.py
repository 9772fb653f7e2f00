"""Where other threads leave work for the engine's thread, a step at a time."""

from __future__ import annotations

import contextlib
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from warmd.engines.base import EngineDiedError

T = TypeVar("T")


class Job(Generic[T]):
    """Work for the engine's thread.

    Args:
        step: Does one step there; returns None while there is more to do, the result once it is done.
        abandon: Called there in place of the next step when the job has been cancelled.
        order: What other ranks make the same job of; None where it concerns this process alone.

    Attributes:
        number: Names it among ranks; None until they have heard of it.
    """

    def __init__(
        self, step: Callable[[], T | None], abandon: Callable[[], None] | None = None, order: Any = None
    ) -> None:
        self.step = step
        self.abandon = abandon
        self.order = order
        self.number: int | None = None
        self.done: Future[T] = Future()


class Desk:
    """A queue of jobs. Quick jobs go first; the others are done one after the other, in order.

    Thread-safe: any thread may submit; only the engine's thread steps. A job's future is cancelled to stop
    it: it is then abandoned in place of its next step.

    Attributes:
        on_submit: Called after each submission, on its thread: the engine's thread may be asleep.
        is_resting: True when there is nothing to do until the next round.
    """

    def __init__(self) -> None:
        self._quick: deque[Job[Any]] = deque()
        self._long: deque[Job[Any]] = deque()
        self._closed: EngineDiedError | None = None
        self.on_submit: Callable[[], None] = lambda: None
        self.is_resting = False

    def submit(self, job: Job[T], *, is_quick: bool = False) -> Future[T]:
        """Queue a job.

        Raises:
            EngineDiedError: The engine's thread has ended.
        """
        if self._closed is not None:
            raise self._closed
        (self._quick if is_quick else self._long).append(job)
        self._drain_if_closed()
        self.on_submit()
        return job.done

    @property
    def has_jobs(self) -> bool:
        """True when there is something to do."""
        return bool(self._quick or self._long)

    def begin_round(self, *, stop: bool = False) -> bool:
        """The engine's thread looks for requests; returns whether it is to stop."""
        return stop

    def step(self) -> bool:
        """Do one step of the first job; False when there was nothing to do.

        An exception of a job goes to whoever waits for it, never into the engine's thread.
        """
        queue = self._quick or self._long
        if queue:
            self._act(queue, is_abandoned=queue[0].done.cancelled())
            return True
        return False

    def step_quick(self) -> bool:
        """Do the first quick job, if there is one, and nothing that takes long."""
        return bool(self._quick) and self.step()

    def rest(self) -> None:
        """Do nothing this time."""

    def _act(self, queue: deque[Job[Any]], *, is_abandoned: bool) -> None:
        if is_abandoned:
            abandon(queue.popleft())
        else:
            self._step(queue[0], queue)

    def _failed(self, job: Job[Any], error: Exception) -> None:
        forget_frames(error)
        _finish(job.done, error=error)

    def fail_all(self, error: Exception) -> None:
        """Fail everything that is queued; later jobs are accepted."""
        self._drain(error)

    def close(self, error: EngineDiedError) -> None:
        """Fail everything that is queued and everything submitted from now on."""
        self._closed = error
        self._drain(error)

    def _drain_if_closed(self) -> None:
        """The thread may have ended since we looked; whoever drains first wins, and both do the same."""
        if self._closed is not None:
            self._drain(self._closed)

    def _step(self, job: Job[Any], queue: deque[Job[Any]]) -> None:
        try:
            result = job.step()
        except Exception as error:  # noqa: BLE001 - the engine's thread serves others too
            self._failed(job, error)
            queue.popleft()
            return
        if result is not None:
            queue.popleft()
            _finish(job.done, result=result)

    def _drain(self, error: Exception) -> None:
        for queue in (self._quick, self._long):
            while queue:
                try:
                    _finish(queue.popleft().done, error=error)
                except IndexError:
                    return


def abandon(job: Job[Any]) -> None:
    """Tell a job that it goes no further."""
    if job.abandon is not None:
        # Nobody waits any more to be told of an error.
        with contextlib.suppress(Exception):
            job.abandon()


def forget_frames(error: BaseException | None) -> None:
    """Whoever gets an error may keep it, and with it all state that the job's frames hold."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


def _finish(future: Future[Any], *, result: Any = None, error: Exception | None = None) -> None:
    # A future cancelled by its waiter at this moment takes neither.
    if not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
