"""What abrupt ends count against."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmd.crash.suspects import KEPT, Suspect, Suspects, read_suspects_json, suspects_json

A = Suspect("a" * 64, "model", "auto", ("coder", "shell"), 353)
B = Suspect("b" * 64, "model", "auto", ("other",), 20)


def counted(suspects: Suspects) -> dict[str, int]:
    return {suspect.key[0]: suspect.ends for suspect in suspects.ended}


def test_what_is_left_marked_is_counted_once_for_each_end() -> None:
    first = Suspects().begin(A).after_end(5.0)
    assert first == Suspects((), (Suspect(A.key, A.model, A.limit, A.entries, A.tokens, 1, 5.0),))
    assert counted(first.begin(A).begin(B).after_end(6.0)) == {"a": 2, "b": 1}


def test_a_warming_that_is_over_leaves_nothing() -> None:
    assert Suspects().begin(A).stop(A.cause).after_end(5.0) == Suspects()


def test_two_ends_are_too_many() -> None:
    once = Suspects().begin(A).after_end(5.0)
    twice = once.begin(A).after_end(6.0)
    found = [suspects.find(A.cause) for suspects in (Suspects(), once, twice)]
    assert [suspect and suspect.is_quarantined for suspect in found] == [None, False, True]


@pytest.mark.parametrize(
    "other",
    [
        Suspect("c" * 64, "model", "auto", ("coder",), 353),
        Suspect(A.key, "other", "auto", ("coder",), 353),
        Suspect(A.key, "model", "auto", ("coder",), 353, fingerprint="other"),
        Suspect(A.key, "model", "12000000000", ("coder",), 353),
    ],
    ids=["content", "model", "files", "limit"],
)
def test_another_content_model_or_limit_is_another_story(other: Suspect) -> None:
    twice = Suspects().begin(A).after_end(5.0).begin(A).after_end(6.0)
    assert twice.find(other.cause) is None


def test_what_is_cleared_counts_no_more() -> None:
    once = Suspects().begin(A).begin(B).after_end(5.0)
    assert counted(once.clear(A.cause)) == {"b": 1}


def test_only_the_latest_are_remembered() -> None:
    suspects = Suspects()
    for number in range(KEPT + 5):
        suspects = suspects.begin(Suspect(str(number), "m", "auto", (), 1)).after_end(float(number))
    assert [suspect.key for suspect in suspects.ended] == [str(number) for number in range(5, KEPT + 5)]


def test_it_survives_being_written() -> None:
    suspects = Suspects().begin(A).after_end(5.5).begin(A).begin(B)
    assert read_suspects_json(json.loads(json.dumps(suspects_json(suspects)))) == suspects


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@given(json_values | st.fixed_dictionaries({"warming": json_values, "ended": json_values}))
def test_whatever_else_a_file_holds_is_refused(value: Any) -> None:
    try:
        found = read_suspects_json(value)
    except ValueError:
        return
    assert found == Suspects()
