"""Delays between tries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmd.backoff import FIRST_DELAY, JITTER, LONGEST_DELAY, retry_delay


@pytest.mark.parametrize(
    ("failures", "expected"), [(1, 1.0), (2, 2.0), (3, 4.0), (9, 256.0), (10, 300.0), (10**9, 300.0)]
)
def test_the_delay_doubles_up_to_five_minutes(failures: int, expected: float) -> None:
    assert expected == retry_delay(failures, 0.5)


@pytest.mark.parametrize(("randomness", "expected"), [(0.0, 3.0), (0.5, 4.0), (1.0, 5.0)])
def test_randomness_spreads_the_delay_over_a_quarter_each_way(randomness: float, expected: float) -> None:
    assert expected == retry_delay(3, randomness)


@given(st.integers(min_value=1), st.floats(0, 1))
def test_the_delay_is_never_shorter_than_the_first_nor_longer_than_the_longest(
    failures: int, randomness: float
) -> None:
    assert FIRST_DELAY * (1 - JITTER) <= retry_delay(failures, randomness) <= LONGEST_DELAY


@given(st.integers(1, 40), st.floats(0, 1))
def test_one_more_failure_never_shortens_the_delay(failures: int, randomness: float) -> None:
    assert retry_delay(failures, randomness) <= retry_delay(failures + 1, randomness)
