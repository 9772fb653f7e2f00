"""How fast a warming goes."""

from __future__ import annotations

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
