"""Chunks by time, and the share of it that warming gets while requests decode."""

from __future__ import annotations

import itertools

import pytest

from warmd.engines.pace import FIRST_TOKENS, MIN_SECONDS, MIN_TOKENS, Pace


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def compute(pace: Pace, clock: Clock, rate: float) -> int:
    """One chunk of the size that is asked for, at so many tokens a second."""
    size = pace.size
    with pace.measuring(size):
        clock.now += size / rate
    return size


def make(clock: Clock, *, live_share: float = 0.1, max_tokens: int = 1024) -> Pace:
    return Pace(max_tokens, 0.25, live_share, clock)


@pytest.mark.parametrize(
    ("rate", "settled"), [(1000.0, 200), (100_000.0, 1024), (100.0, 20), (1.0, MIN_TOKENS)]
)
def test_a_chunk_takes_the_time_that_is_set_and_grows_step_by_step(rate: float, settled: int) -> None:
    clock = Clock()
    pace = make(clock)
    sizes = [compute(pace, clock, rate) for _ in range(10)]
    assert sizes[0] == FIRST_TOKENS
    assert sizes[-1] == pytest.approx(settled, abs=1)
    assert all(after <= 2 * max(before, MIN_TOKENS) for before, after in itertools.pairwise(sizes))


def test_chunks_that_take_a_little_more_than_the_one_before_stay_within_the_time() -> None:
    clock = Clock()
    pace = make(clock)
    for number in range(100):
        began = clock.now
        compute(pace, clock, 1000 * (0.9, 1.1, 0.95, 1.05)[number % 4])
        assert clock.now - began <= 0.25


def test_another_model_is_measured_anew() -> None:
    clock = Clock()
    pace = make(clock)
    for _ in range(9):
        compute(pace, clock, 10_000)
    pace.forget()
    assert pace.size == FIRST_TOKENS


def test_no_chunk_is_larger_than_is_allowed() -> None:
    assert make(Clock(), max_tokens=5).size == 5


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_while_requests_decode_warming_gets_its_share_of_the_time_and_no_more(share: float) -> None:
    clock = Clock()
    pace = make(clock, live_share=share)
    for _ in range(9):
        compute(pace, clock, 1000)
    began, warming = clock.now, 0.0
    for _ in range(4000):
        with pace.sharing() as may_step:
            if may_step:
                before = clock.now
                compute(pace, clock, 1000)
                warming += clock.now - before
                assert clock.now - before <= 0.25 + MIN_SECONDS
        # A token of the requests.
        clock.now += 0.01
    assert warming / (clock.now - began) == pytest.approx(share, rel=0.1)


def test_a_share_of_nothing_is_never() -> None:
    clock = Clock()
    pace = make(clock, live_share=0)
    for _ in range(1000):
        with pace.sharing() as may_step:
            assert not may_step
        clock.now += 1


def test_time_in_which_a_request_is_prefilled_earns_nothing() -> None:
    clock = Clock()
    pace = make(clock)
    with pace.sharing() as may_step:
        assert not may_step
    pace.busy()
    clock.now += 1000
    with pace.sharing() as may_step:
        assert not may_step


def test_nothing_is_saved_up_for_a_long_pause() -> None:
    clock = Clock()
    pace = make(clock)
    with pace.sharing():
        pass
    clock.now += 3600
    for _ in range(9):
        compute(pace, clock, 1000)
    with pace.sharing() as may_step:
        assert may_step
        assert compute(pace, clock, 1000) <= 250


def test_an_idle_server_takes_whole_chunks_again() -> None:
    clock = Clock()
    pace = make(clock)
    for _ in range(9):
        compute(pace, clock, 1000)
    with pace.sharing():
        pass
    assert pace.size == pytest.approx(16, abs=1)
    pace.idle()
    assert pace.size == pytest.approx(200, abs=1)


def test_what_was_computed_adds_up_without_the_time_in_between() -> None:
    clock = Clock()
    pace = make(clock)
    sizes = []
    for _ in range(3):
        sizes.append(compute(pace, clock, 100.0))
        clock.now += 1000
    tokens, seconds = pace.computed
    assert tokens == sum(sizes)
    assert seconds == pytest.approx(tokens / 100)
