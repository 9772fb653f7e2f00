"""The event catalogue."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest

from warmd.events import CATALOGUE, Event, Level, catalogue_table, make_event
from warmd.logs import RESERVED


def test_an_event_has_the_level_and_the_field_order_of_the_catalogue() -> None:
    event = make_event("entry.failed", retry_in_s=1.5, reason="r", state="failed", entry="a")
    expected = {"entry": "a", "state": "failed", "reason": "r", "retry_in_s": 1.5}
    assert Event("entry.failed", "warning", expected) == event
    assert list(expected) == list(event.fields)


def test_a_level_may_be_given() -> None:
    event = make_event("daemon.stopping", level="error", pid=7, reason="r")
    assert Event("daemon.stopping", "error", {"pid": 7, "reason": "r"}) == event


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("entry.vanished", ["entry"]),
        ("entry.lost", ["entry"]),
        ("entry.lost", ["entry", "tokens", "text"]),
        ("entry.lost", []),
    ],
)
def test_what_is_not_in_the_catalogue_is_refused(name: str, fields: list[str]) -> None:
    given: dict[str, Any] = dict.fromkeys(fields, "secret")
    with pytest.raises(ValueError, match=r"^not in the event catalogue: ") as caught:
        make_event(name, **given)
    # Values could be content.
    assert f"not in the event catalogue: {name} with {sorted(fields)}" == str(caught.value)


def test_names_are_noun_and_participle() -> None:
    odd = [name for name in CATALOGUE if not re.fullmatch(r"[a-z]+\.[a-z_]+", name)]
    assert odd == []


def test_fields_are_flat_words_that_do_not_clash_with_those_of_every_line() -> None:
    fields = {field for kind in CATALOGUE.values() for field in kind.fields}
    assert {field for field in fields if not re.fullmatch(r"[a-z][a-z0-9_]*", field)} == set()
    assert fields & RESERVED == set()


def test_every_event_has_a_level_a_meaning_and_fields_once_each() -> None:
    bad = [
        name
        for name, kind in CATALOGUE.items()
        if kind.level not in get_args(Level) or not kind.meaning or len(kind.fields) != len(set(kind.fields))
    ]
    assert bad == []


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        (
            "entry.warmed",
            (
                "entry",
                "tokens",
                "new_tokens",
                "reused_tokens",
                "source",
                "ms",
                "kv_bytes",
                "disk_tokens",
                "disk_bytes",
                "disk_ms",
            ),
        ),
        ("plan.made", ("generation", "keep", "warm", "drop", "defer", "new_tokens", "disk_tokens")),
        (
            "prompts.accepted",
            ("generation", "sha256", "entries", "added", "edited", "removed", "unchanged"),
        ),
        ("prompts.rejected", ("sha256", "kept_generation", "errors")),
    ],
)
def test_events_that_others_read_keep_their_fields(name: str, fields: tuple[str, ...]) -> None:
    assert fields == CATALOGUE[name].fields


def test_the_table_has_a_row_for_each_event() -> None:
    rows = catalogue_table().splitlines()
    assert rows[0] == "| event | level | fields | meaning |"
    assert list(CATALOGUE) == [row.split("`")[1] for row in rows[2:]]
    assert {6 - 1} == {row.count("|") for row in rows}
