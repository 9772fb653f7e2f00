"""Decides when files that change have settled."""

from __future__ import annotations

from dataclasses import dataclass, replace

from warmd.config import WatchSettings
from warmd.watch.reports import Look
from warmd.watch.signature import Signature

STEP = 0.05
"""Seconds between two looks at files that change."""


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
