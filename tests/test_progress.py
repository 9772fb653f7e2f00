"""How fast a warming goes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from warmd.engines.base import Effort
from warmd.progress import Progress


def test_the_rate_leaves_out_what_was_there_before_the_first_chunk() -> None:
    times = iter([100.0, 102.0, 104.0])
    progress = Progress(clock=lambda: next(times))
    rates = [progress.rate]
    for done in (5000, 5200, 5800):
        progress.note(done)
        rates.append(progress.rate)
    assert rates == [None, None, 100.0, 200.0]


def test_no_time_and_no_tokens_make_no_rate() -> None:
    progress = Progress(clock=lambda: 1.0)
    progress.note(1)
    progress.note(2)
    assert progress.rate is None


def rate_after(chunks: Sequence[tuple[int, float, Effort | None]]) -> float | None:
    """The rate after chunks, each with the tokens done, the time and the engine's effort at its end."""
    times, efforts = iter([at for _, at, _ in chunks]), iter([effort for _, _, effort in chunks])
    progress = Progress(lambda: next(efforts), clock=lambda: next(times))
    for done, _, _ in chunks:
        progress.note(done)
    return progress.rate


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        pytest.param(
            [(16, 100.0, Effort(16, 2.0)), (32, 102.0, Effort(32, 4.0)), (46, 141.0, Effort(46, 6.0))],
            7.5,
            id="a request of 37 s came before the last chunk",
        ),
        pytest.param(
            [(16, 100.0, None), (32, 102.0, None), (46, 141.0, None)], 30 / 41, id="the engine does not tell"
        ),
        pytest.param(
            [(16, 100.0, Effort(500, 50.0)), (32, 104.0, Effort(532, 54.0))], 4.0, id="another is warmed, too"
        ),
        pytest.param(
            [(1000, 100.0, Effort()), (2000, 101.0, Effort()), (2020, 150.0, Effort(20, 1.0))],
            510.0,
            id="what is read from disk takes time that is not computing",
        ),
    ],
)
def test_the_rate_leaves_out_what_live_requests_take(
    chunks: Sequence[tuple[int, float, Effort | None]], expected: float
) -> None:
    assert rate_after(chunks) == expected
