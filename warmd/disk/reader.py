"""Reads files ahead of whoever takes them, on a thread of its own: a disk that hangs holds up nobody else."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from warmd.disk.cover import Use
from warmd.disk.shelf import Shelf

_AHEAD = 1
"""Files that wait in memory to be taken, besides the one that is being read."""
_FORGOTTEN = 300.0
"""Seconds after which nobody will take what was read: the model has gone, most likely."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What will be read, in order."""

    uses: Sequence[Use]


@dataclass(frozen=True, slots=True)
class Read:
    """A file that was read and is what was written."""

    use: Use
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """A file could not be read, or (None) it could not be planned what to read; nothing comes after it."""

    use: Use | None
    error: Exception


@dataclass(frozen=True, slots=True)
class Ended:
    """All has been read."""


Item = Planned | Read | Failed | Ended


class Reader:
    """Reads what a plan says.

    Args:
        shelf: Where from.
        plan: Called once, on the reader's thread; it may take long. What it raises ends the reading.
    """

    def __init__(self, shelf: Shelf, plan: Callable[[], Sequence[Use]]) -> None:
        self._shelf = shelf
        self._plan: Callable[[], Sequence[Use]] | None = plan
        self._items: queue.Queue[Item] = queue.Queue(_AHEAD)
        self._is_cancelled = threading.Event()
        threading.Thread(target=self._run, name="disk-reader", daemon=True).start()

    def take(self, timeout: float) -> Item | None:
        """The next item, or None when there is none within so many seconds."""
        try:
            return self._items.get(timeout=timeout)
        except queue.Empty:
            return None

    def cancel(self) -> None:
        """Read no more, as soon as the disk lets go."""
        self._is_cancelled.set()

    def _run(self) -> None:
        use: Use | None = None
        try:
            # Not longer than for this: it may hold whoever takes what is read, with all that was taken.
            plan, self._plan = self._plan, None
            uses = plan() if plan is not None else ()
            del plan
            self._put(Planned(uses))
            for use in uses:
                if self._is_cancelled.is_set():
                    return
                self._put(Read(use, self._shelf.read(use.record)))
            self._put(Ended())
        except Exception as error:  # noqa: BLE001 - told by whoever takes it; the rest is prefilled
            self._put(Failed(use, error))

    def _put(self, item: Item) -> None:
        deadline = time.monotonic() + _FORGOTTEN
        while not self._is_cancelled.is_set():
            try:
                self._items.put(item, timeout=0.1)
                return
            except queue.Full:
                if time.monotonic() > deadline:
                    self._is_cancelled.set()
