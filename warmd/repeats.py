"""Errors that come again and again: in full once, and then as a count now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from warmd.events import FOREIGN, Level

REPORT_SECONDS = 60.0
"""Repetitions are reported after this long."""
FORGET_SECONDS = 600.0
"""After so long without any the next one is logged in full."""
MOST = 200
"""Different errors that are followed; beyond that, the one that came first is forgotten."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """What came again.

    Attributes:
        name: The event.
        level: Its level.
        texts: Its fields that are no numbers.
        times: How often it came again since it was last told.
        seconds: For how long that has been.
    """

    name: str
    level: Level
    texts: Mapping[str, Any]
    times: int
    seconds: float


@dataclass(slots=True)
class _Run:
    name: str
    level: Level
    texts: Mapping[str, Any]
    since: float
    last: float
    times: int = 0


class Repeats:
    """Counts repetitions. From any thread.

    Args:
        clock: Seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()

    def is_news(self, name: str, level: Level, fields: Mapping[str, Any]) -> bool:
        """Whether an event is to be logged in full; else it has been counted. Numbers make no difference."""
        if not _may_go_on(name, level, fields):
            return True
        texts = {key: value for key, value in fields.items() if not isinstance(value, (int, float))}
        key, now = repr((name, level, sorted(texts.items()))), self._clock()
        with self._lock:
            run = self._runs.get(key)
            # One that has something to report keeps its place until it has done so.
            if run is None or (not run.times and now - run.last >= FORGET_SECONDS):
                self._runs[key] = _Run(name, level, texts, now, now)
                return True
            run.times += 1
            run.last = now
            return False

    def take(self, *, everything: bool = False) -> list[Repeated]:
        """What is to be reported now; `everything` at the end of the process."""
        now, found = self._clock(), []
        with self._lock:
            for key, run in list(self._runs.items()):
                is_surplus = len(self._runs) > MOST
                if run.times and (everything or is_surplus or now - run.since >= REPORT_SECONDS):
                    found.append(Repeated(run.name, run.level, run.texts, run.times, now - run.since))
                    run.times, run.since = 0, now
                if is_surplus or (not run.times and now - run.last >= FORGET_SECONDS):
                    del self._runs[key]
        return found


def _may_go_on(name: str, level: Level, fields: Mapping[str, Any]) -> bool:
    """Whether it may come without end by itself. Everything else tells of a change each time."""
    is_retried = name == "entry.failed" and fields.get("retry_in_s") is not None
    return level in ("warning", "error") and (is_retried or name == FOREIGN)
