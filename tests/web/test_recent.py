"""What is kept of events."""

from __future__ import annotations

from typing import Any

from warmd.events import CATALOGUE, Event, make_event
from warmd.web.recent import KEPT, NAMES, Recent

CANARY = "XYZZYPLUGH"


def test_names_and_numbers_are_kept_and_passed_on() -> None:
    passed: list[Event] = []
    recent = Recent(passed.append)
    event = make_event("entry.failed", entry="coder", state="failed", reason="words", retry_in_s=1.5)
    recent(event)
    [kept] = recent.events()
    assert passed == [event]
    assert (kept.id, kept.event, kept.level) == (1, "entry.failed", "warning")
    assert kept.fields == {"entry": "coder", "state": "failed", "retry_in_s": 1.5}


def test_of_no_event_is_any_other_text_kept() -> None:
    recent = Recent()
    private: tuple[Any, ...] = (CANARY, [{"message": CANARY}], {CANARY: CANARY}, (CANARY,))
    for name, kind in CATALOGUE.items():
        for value in private:
            fields: dict[str, Any] = {field: 1 if field in NAMES else value for field in kind.fields}
            recent(make_event(name, **fields))
    assert CANARY not in repr(recent.events())


def test_only_the_last_are_kept() -> None:
    recent = Recent()
    for number in range(1, KEPT + 51):
        recent(make_event("entry.warming", entry="coder", tokens=number))
    assert [event.id for event in recent.events()] == list(range(51, KEPT + 51))
