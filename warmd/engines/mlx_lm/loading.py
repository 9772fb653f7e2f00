"""Loading one prefix from disk, a file at a time, on the engine's thread: another one reads."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from warmd.disk.cover import Use
from warmd.disk.errors import DamagedError
from warmd.disk.pace import FIRST_PATIENCE, allowed_seconds
from warmd.disk.reader import Failed, Item, Planned, Read, Reader
from warmd.engines.mlx_lm.guard import Guard
from warmd.engines.mlx_lm.intake import Request, WrongStateError, reach_of, runs_of, take_in, up_to
from warmd.engines.mlx_lm.packing import State, from_bytes
from warmd.engines.mlx_lm.store import WarmStore

TURN = 0.01
"""Seconds for which the engine's thread waits for the disk before it looks after others."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What the disk has for it: files in order, none where there is nothing."""

    request: Request
    uses: Sequence[Use]

    @property
    def end(self) -> int:
        """So many tokens are there once they are loaded: where not all can be cut, up to a snapshot."""
        is_cuttable = self.request.form.is_cuttable
        ends = (use.end for use in self.uses if is_cuttable or use.has_snapshot)
        return max(ends, default=self.request.done)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What came from disk: tokens, bytes of the files, seconds."""

    tokens: int = 0
    nbytes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Disk:
    """What a loading asks of whoever keeps the files.

    Attributes:
        choose: Which files to read; called on the reader's thread.
        open_reader: Begins to read what a function chooses.
        reject: Told of files that are wrong, and why: they are not used again, and removed.
        unreadable: Told of a file that could not be read, and why; it is not used again for now.
        is_worth: Whether reading is to be tried that may take so many seconds.
        slow: Told that reading so many tokens has taken longer than prefilling: seconds, and those of that.
        tokens_per_s: How fast the model prefills, or None.
        is_checked: Loaded state is to be checked.
    """

    choose: Callable[[Sequence[Request]], Choice]
    open_reader: Callable[[Callable[[], Sequence[Use]]], Reader]
    reject: Callable[[Sequence[Use], str], None]
    unreadable: Callable[[Use, str], None]
    is_worth: Callable[[float], bool]
    slow: Callable[[int, float, float], None]
    tokens_per_s: Callable[[], float | None]
    is_checked: bool


class Loading:
    """One prefix on its way from disk into the store.

    Args:
        requests: What would do, the best first.
        disk: See there.
        store: Where it goes.
        provider: mlx-lm's `ModelProvider`.
        on_progress: Called with the tokens done so far.
        guard: Asked for room; None where memory is no concern.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        disk: Disk,
        store: WarmStore,
        provider: Any,
        on_progress: Callable[[int], None],
        guard: Guard | None = None,
    ) -> None:
        self._disk = disk
        self._store = store
        self._provider = provider
        self._on_progress = on_progress
        self._guard = guard
        self._choice: Choice | None = None
        self._states: list[tuple[Use, State]] = []
        self._uses: Sequence[Use] = ()
        self._intake: Iterator[int | None] | None = None
        self._seconds = 0.0
        self._allowed = FIRST_PATIENCE
        self._reader = disk.open_reader(lambda: self._choose(requests))
        # The model may go, and this with it.
        weakref.finalize(self, self._reader.cancel).atexit = False
        self.loaded = Loaded()

    def _choose(self, requests: Sequence[Request]) -> Sequence[Use]:
        self._choice = self._disk.choose(requests)
        return self._choice.uses

    def step(self) -> bool:
        """Look at the next file or, after the last one, do a step of taking all in; True once that is done.

        Raises:
            Exception: Something unexpected; what is wrong with the disk is no error.
        """
        began = time.monotonic()
        try:
            if self._intake is not None:
                return self._take_in(self._intake)
            return self._step(self._reader.take(TURN))
        finally:
            # Not what passes between two steps: the thread may have served requests.
            self._seconds += time.monotonic() - began

    def _step(self, item: Item | None) -> bool:
        if item is None:
            return self._is_late() and self._finish()
        if isinstance(item, Planned):
            return self._begin(item.uses)
        if isinstance(item, Read):
            return not self._take(item) and self._finish()
        if isinstance(item, Failed):
            self._fail(item.use, item.error)
        return self._finish()

    def _fail(self, use: Use | None, error: Exception) -> None:
        if not isinstance(error, (DamagedError, OSError)):
            raise error
        # A folder that cannot be looked at is told by the writer.
        if use is not None and isinstance(error, DamagedError):
            self._disk.reject([use], error.reason)
        elif use is not None and isinstance(error, OSError):
            self._disk.unreadable(use, f"it cannot be read: {error.strerror or type(error).__name__}")

    def abandon(self) -> None:
        """Stop here, and let go of what has been read."""
        self._reader.cancel()
        self._states, self._intake = [], None

    def _begin(self, uses: Sequence[Use]) -> bool:
        if not uses or self._choice is None:
            return True
        if self._guard is not None and not self._guard.has_room(self._takes(self._guard, self._choice)):
            # Prefilling will say how much there would have to be.
            self.abandon()
            return True
        tokens = self._choice.end - self._choice.request.done
        rates = [use.record.tokens_per_s for use in uses if use.record.tokens_per_s]
        self._allowed = allowed_seconds(tokens, self._disk.tokens_per_s() or max(rates, default=None))
        self._seconds = 0.0
        if not self._disk.is_worth(self._allowed):
            self.abandon()
            return True
        return False

    @staticmethod
    def _takes(guard: Guard, choice: Choice) -> int:
        """Bytes: of the files, and besides of reading them, or of going on where they end too soon."""
        sizes, tokens = [use.record.nbytes for use in choice.uses], len(choice.request.tokens)
        rest = guard.cost.peak(tokens) if choice.end < tokens and guard.cost is not None else 0
        return sum(sizes) + max(2 * max(sizes), rest)

    def _is_late(self) -> bool:
        if self._seconds <= self._allowed:
            return False
        tokens = len(self._choice.request.tokens) if self._choice is not None else 0
        self._disk.slow(tokens, self._seconds, self._allowed)
        return True

    def _take(self, item: Read) -> bool:
        choice = self._choice
        if choice is None:
            return False
        request, name = choice.request, item.use.record.name
        try:
            state = from_bytes(name, item.content, request.tokens, item.use.end, request.form)
        except DamagedError as error:
            self._disk.reject([item.use], error.reason)
            return False
        self._states.append((item.use, state))
        self._on_progress(max(request.done, item.use.end))
        return not self._is_late()

    # --- all there is has been read --------------------------------------------------------------

    def _finish(self) -> bool:
        """True where there is nothing to take in."""
        self._reader.cancel()
        states, self._states = self._states, []
        if self._choice is None or not states:
            return True
        request = self._choice.request
        runs, snapshots = runs_of(states, request.form, request.done)
        end = reach_of(runs, snapshots, request.form)
        if end < max(request.least, request.done + 1):
            return True
        self._uses = [use for use, _ in states]
        self._intake = take_in(
            request,
            up_to(runs, end),
            {at: snapshot for at, snapshot in snapshots.items() if at <= end},
            self._store,
            self._provider,
            self._guard,
            is_checked=self._disk.is_checked,
        )
        return False

    def _take_in(self, intake: Iterator[int | None]) -> bool:
        try:
            end = next(intake)
        except WrongStateError:
            self._disk.reject(self._uses, "what the model computes differs from it")
            return True
        if end is None:
            return False
        if end and self._choice is not None:
            size = sum(use.record.nbytes for use in self._uses)
            self.loaded = Loaded(end - self._choice.request.done, size, self._seconds)
        return True
