"""What changes is found, and ordinary text is passed over."""

from __future__ import annotations

import random
import string
import time
import uuid
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lint.corpus import CHANGES, NOW, STAYS
from warmd.lint import Spot, find_spots

ROOT = Path(__file__).parents[2]


def test_the_corpus_is_large_enough() -> None:
    assert len(CHANGES) >= 30
    assert len(STAYS) >= 60


@pytest.mark.parametrize("text", CHANGES)
def test_what_changes_is_found_where_it_is(text: str) -> None:
    found = [(spot.what, text[spot.start : spot.end]) for spot in find_spots(text, NOW)]
    assert [CHANGES[text]] == found


@pytest.mark.parametrize("text", STAYS)
def test_ordinary_text_gives_no_alarm(text: str) -> None:
    assert find_spots(text, NOW) == []


@pytest.mark.parametrize("text", CHANGES)
def test_it_is_found_in_the_middle_of_a_long_prompt(text: str) -> None:
    before = "\n".join(STAYS) + "\n"
    found = find_spots(before + text + "\n" + before, NOW)
    assert [spot.start - len(before) for spot in found] == [spot.start for spot in find_spots(text, NOW)]


def test_dates_are_near_for_three_days() -> None:
    shown = {days: (NOW + timedelta(days=days)).strftime("%Y-%m-%d") for days in range(-6, 7)}
    near = [days for days, text in shown.items() if find_spots(f"On {text} it rained.", NOW)]
    assert near == [-3, -2, -1, 0, 1, 2, 3]


@pytest.mark.parametrize(
    "written",
    ["%Y-%m-%d", "%Y/%m/%d", "%d %b %Y", "%d %B %Y", "%B %d, %Y", "%d.%m.%Y", "%m/%d/%Y", "%d-%m-%Y"],
)
@given(days=st.integers(-3, 3))
def test_today_is_found_in_every_way_to_write_it(written: str, days: int) -> None:
    text = f"It is {(NOW + timedelta(days=days)).strftime(written)} in Rome."
    assert [spot.what for spot in find_spots(text, NOW)] == ["a date of about today"]


@given(st.uuids(version=4))
def test_a_uuid_is_found(value: uuid.UUID) -> None:
    found = find_spots(f"It is {value}.", NOW)
    assert found in ([Spot(6, 42, "a UUID")], [])


def test_most_tokens_that_are_drawn_by_lot_are_found_and_hex_is_not() -> None:
    draw = random.Random(7)
    alphabet = string.ascii_letters + string.digits
    tokens = ["".join(draw.choices(alphabet, k=32)) for _ in range(200)]
    assert sum(bool(find_spots(f"Use {token} here.", NOW)) for token in tokens) >= 160
    hashes = ["".join(draw.choices("0123456789abcdef", k=40)) for _ in range(200)]
    assert not any(find_spots(f"Use {token} here.", NOW) for token in hashes)


@given(st.text())
def test_no_text_makes_it_fail_and_spots_are_in_order_within_it(text: str) -> None:
    ends = [0]
    for spot in find_spots(text, NOW):
        assert ends[-1] <= spot.start < spot.end <= len(text)
        ends.append(spot.end)


@pytest.mark.parametrize("path", sorted(ROOT.glob("warmd/**/*.py")), ids=lambda path: path.name)
def test_code_gives_no_alarm(path: Path) -> None:
    text = path.read_text("utf-8")
    assert [text[spot.start : spot.end] for spot in find_spots(text, NOW)] == []


@pytest.mark.parametrize(
    "unit", ["1", "a1B", "2026-", "current date: ", "-", "0f", "request id: ", "\n", " ", "e.g. ", "12:"]
)
def test_no_text_takes_long(unit: str) -> None:
    text = unit * (200_000 // len(unit))
    begun = time.thread_time()
    find_spots(text, NOW)
    assert time.thread_time() - begun < 5
