"""How fast a warming goes."""

from __future__ import annotations

from warmd.progress import Progress


def test_the_rate_leaves_out_what_was_there_before_the_first_chunk() -> None:
    now = 100.0
    progress = Progress(clock=lambda: now)
    assert progress.rate is None
    progress.note(5000)
    assert progress.rate is None
    now = 102.0
    progress.note(5200)
    assert progress.rate == 100.0
    now = 104.0
    progress.note(5800)
    assert progress.rate == 200.0


def test_no_time_and_no_tokens_make_no_rate() -> None:
    progress = Progress(clock=lambda: 1.0)
    progress.note(1)
    progress.note(2)
    assert progress.rate is None
