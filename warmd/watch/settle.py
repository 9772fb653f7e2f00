"""Decides when files that change have settled."""

from __future__ import annotations

from dataclasses import dataclass, replace

from warmd.settings import WatchSettings
from warmd.watch.reports import Look
from warmd.watch.signature import Signature

STEP = 0.05
"""Seconds between two looks at files that change."""

LONGEST_LAG = 0.25
"""Seconds by which an event may be late; what a file's own clock says is believed up to here."""

OVERDUE = 1.0
"""Seconds after which an event that has not come does not come."""


@dataclass(frozen=True, slots=True)
class Settling:
    """Files that were found changed at `began`, and look as they do now since `quiet_since` (seconds)."""

    current: Signature
    began: float
    quiet_since: float

    def observe(self, latest: Signature, now: float) -> Settling:
        """What is known after one more look."""
        return self if latest == self.current else replace(self, current=latest, quiet_since=now)

    def verdict(self, now: float, settings: WatchSettings) -> Look | None:
        """None while it is worth waiting."""
        if now - self.quiet_since >= settings.settle:
            return Look()
        if now - self.began >= settings.ceiling:
            return Look(still_changing=True)
        return None

    def delay(self, now: float, settings: WatchSettings) -> float:
        """Seconds until the next look: at the verdict, if that comes before the next step."""
        verdict_at = min(self.quiet_since + settings.settle, self.began + settings.ceiling)
        return min(STEP, max(0.0, verdict_at - now))


def quiet_before(seen: Signature, current: Signature, wall_clock: float, settle: float) -> float:
    """Seconds for which files had already been quiet when they were found changed.

    Events come late, and a save should not wait for that twice. One more step is always waited for, so
    a file server whose clock is behind cannot make a file settled that is still being written.

    Args:
        seen: What the files looked like before.
        current: What they look like now.
        wall_clock: Now, as `time.time`.
        settle: How long they have to be quiet.
    """
    changed_at = _changed_at(seen, current)
    return 0.0 if changed_at is None else max(0.0, min(wall_clock - changed_at, LONGEST_LAG, settle - STEP))


def is_overdue(seen: Signature, current: Signature, wall_clock: float) -> bool:
    """True when files that no event has told of changed so long ago that none is on its way any more."""
    changed_at = _changed_at(seen, current)
    return changed_at is not None and wall_clock - changed_at >= OVERDUE


def _changed_at(seen: Signature, current: Signature) -> float | None:
    """When the last of the files changed that are not as they were, as `time.time`; None if not known."""
    changes = [file.ctime_ns for file in set(current) - set(seen)]
    # A file that is gone does not say since when.
    known = [changed / 1e9 for changed in changes if changed is not None]
    return max(known) if known and len(known) == len(changes) else None
