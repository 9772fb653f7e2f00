"""When files that change count as settled."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmd.settings import WatchSettings
from warmd.watch import FileSignature, Look, Signature
from warmd.watch.settle import LONGEST_LAG, OVERDUE, STEP, Settling, is_overdue, quiet_before

SETTINGS = WatchSettings(settle=0.25, ceiling=1.0)


def looking(size: int) -> Signature:
    return (FileSignature(Path("/w.json"), size=size),)


FOUND = Settling(looking(1), began=10.0, quiet_since=10.0)


def test_a_change_restarts_the_quiet_time() -> None:
    assert Settling(looking(2), began=10.0, quiet_since=10.2) == FOUND.observe(looking(2), 10.2)


def test_an_equal_look_does_not_restart_the_quiet_time() -> None:
    assert FOUND.observe(looking(1), 10.2) == FOUND


@pytest.mark.parametrize(
    ("quiet_since", "now", "expected"),
    [
        (10.0, 10.0, None),
        (10.0, 10.2, None),
        (10.0, 10.25, Look()),
        (10.9, 10.95, None),
        (10.9, 11.0, Look(still_changing=True)),
        (10.75, 11.0, Look()),
    ],
)
def test_files_settle_when_quiet_or_at_the_ceiling(
    quiet_since: float, now: float, expected: Look | None
) -> None:
    assert expected == Settling(looking(1), 10.0, quiet_since).verdict(now, SETTINGS)


@pytest.mark.parametrize(
    ("quiet_since", "now", "expected"),
    [
        (10.0, 10.0, STEP),
        (10.0, 10.24, 0.01),
        (10.95, 10.98, 0.02),
        (10.0, 12.0, 0.0),
    ],
)
def test_the_next_look_is_a_step_away_or_at_the_verdict(
    quiet_since: float, now: float, expected: float
) -> None:
    assert expected == pytest.approx(Settling(looking(1), 10.0, quiet_since).delay(now, SETTINGS))


@pytest.mark.parametrize(
    ("changed_at", "settle", "expected"),
    [
        (100.0, 0.25, 0.0),
        (99.9, 0.25, 0.1),
        (99.8, 0.25, 0.2),
        (50.0, 0.25, 0.2),
        (50.0, 9.0, LONGEST_LAG),
        (101.0, 0.25, 0.0),
        (50.0, 0.0, 0.0),
        (None, 0.25, 0.0),
    ],
    ids=["now", "lately", "a settle ago", "long ago", "long settle", "future", "no settle", "gone"],
)
def test_the_time_an_event_took_counts_as_quiet_up_to_a_bound(
    changed_at: float | None, settle: float, expected: float
) -> None:
    other = FileSignature(Path("/other"), ctime_ns=1)
    changed = FileSignature(Path("/w.json"), ctime_ns=None if changed_at is None else int(changed_at * 1e9))
    seen = (FileSignature(Path("/w.json"), ctime_ns=2), other)
    assert expected == pytest.approx(quiet_before(seen, (changed, other), 100.0, settle))


@pytest.mark.parametrize(
    ("changed_at", "expected"),
    [(100.0, False), (100.1 - OVERDUE, False), (100.0 - OVERDUE, True), (101.0, False), (None, False)],
    ids=["now", "lately", "long ago", "future", "gone"],
)
def test_an_event_is_overdue_only_of_a_change_that_is_known_to_be_old(
    changed_at: float | None, expected: bool
) -> None:
    other = FileSignature(Path("/other"), ctime_ns=1)
    changed = FileSignature(Path("/w.json"), ctime_ns=None if changed_at is None else int(changed_at * 1e9))
    seen = (FileSignature(Path("/w.json"), ctime_ns=2), other)
    assert is_overdue(seen, (changed, other), 100.0) is expected
    assert not is_overdue(seen, seen, 100.0)
