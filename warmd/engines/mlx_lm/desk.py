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
    """

    def __init__(self, step: Callable[[], T | None], abandon: Callable[[], None] | None = None) -> None:
        self.step = step
        self.abandon = abandon
        self.done: Future[T] = Future()


class Desk:
    """A queue of jobs. Quick jobs go first; the others are done one after the other, in order.

    Thread-safe: any thread may submit; only the engine's thread steps. A job's future is cancelled to stop
    it: it is then dropped before its next step.

    Attributes:
        on_submit: Called after each submission, on its thread: the engine's thread may be asleep.
    """

    def __init__(self) -> None:
        self._quick: deque[Job[Any]] = deque()
        self._long: deque[Job[Any]] = deque()
        self._closed: EngineDiedError | None = None
        self.on_submit: Callable[[], None] = lambda: None

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

    def step(self) -> bool:
        """Do one step of the first job; False when there was nothing to do.

        An exception of a job goes to whoever waits for it, never into the engine's thread.
        """
        return self._step_first(self._quick) or self._step_first(self._long)

    def step_quick(self) -> bool:
        """Do the first quick job, if there is one, and nothing that takes long."""
        return self._step_first(self._quick)

    def _step_first(self, queue: deque[Job[Any]]) -> bool:
        while queue:
            job = queue[0]
            if job.done.cancelled():
                queue.popleft()
                if job.abandon is not None:
                    # Nobody waits any more to be told of an error.
                    with contextlib.suppress(Exception):
                        job.abandon()
                continue
            self._step(job, queue)
            return True
        return False

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
            queue.popleft()
            _forget_frames(error)
            _finish(job.done, error=error)
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


def _forget_frames(error: BaseException | None) -> None:
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
