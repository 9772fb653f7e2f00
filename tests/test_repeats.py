"""Errors that come again and again."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from warmd.events import FOREIGN, make_event
from warmd.foreign import ForeignHandler
from warmd.logs import Log
from warmd.repeats import FORGET_SECONDS, MOST, REPORT_SECONDS, Repeats


class FakeTime:
    """Seconds that pass when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        """Now."""
        return self.now


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


def failed(entry: str = "a", reason: str = "warming failed with RuntimeError", retry: float = 1.0) -> Any:
    return make_event("entry.failed", entry=entry, state="failed", reason=reason, retry_in_s=retry)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [{key: value for key, value in line.items() if key != "ts"} for line in found]


def test_an_error_is_logged_in_full_once_and_then_summarised_with_a_count(time: FakeTime) -> None:
    stream = io.StringIO()
    log = Log(stream, clock=time)
    for number in range(6):
        log(failed(retry=2.0**number))
        time.now += REPORT_SECONDS / 10
    time.now = REPORT_SECONDS
    log.summarise()
    texts = {"entry": "a", "state": "failed", "reason": "warming failed with RuntimeError"}
    summary = {"event": "log.repeated", "repeated": "entry.failed", "times": 5, "seconds": REPORT_SECONDS}
    assert lines(stream) == [
        {"level": "warning", "event": "entry.failed", **texts, "retry_in_s": 1.0},
        {"level": "warning", **summary, **texts},
    ]


def test_while_it_goes_on_only_counts_are_logged(time: FakeTime) -> None:
    stream = io.StringIO()
    log = Log(stream, clock=time)
    for _ in range(1000):
        log(failed())
        time.now += 1
    names = [line["event"] for line in lines(stream)]
    assert names == ["entry.failed", *["log.repeated"] * 16]
    assert sum(line.get("times", 0) for line in lines(stream)) == 16 * 60 - 1


def test_after_a_long_time_without_it_is_news_again(time: FakeTime) -> None:
    repeats = Repeats(time)
    event = failed()
    assert repeats.is_news(event.name, event.level, event.fields)
    time.now = FORGET_SECONDS
    assert repeats.is_news(event.name, event.level, event.fields)


def test_others_are_news(time: FakeTime) -> None:
    stream = io.StringIO()
    log = Log(stream, clock=time)
    for event in (failed("a"), failed("b"), failed("a", "another")):
        log(event)
    assert [line["event"] for line in lines(stream)] == ["entry.failed"] * 3


@pytest.mark.parametrize(
    "event",
    [
        make_event("live.near_miss", entry="a", tokens=9, matched=1, prefix_tokens=2, cached=0),
        make_event("prompts.rejected", sha256="0", kept_generation=1, errors=[]),
        make_event("entry.lost", entry="a", tokens=3, cause="gone"),
        make_event("entry.failed", entry="a", state="quarantined", reason="r", retry_in_s=None),
    ],
    ids=lambda event: event.name,
)
def test_what_tells_of_a_change_is_logged_each_time(event: Any, time: FakeTime) -> None:
    stream = io.StringIO()
    log = Log(stream, clock=time)
    log(event)
    log(event)
    assert len(lines(stream)) == 2


def test_what_is_left_at_the_end_is_told_then(time: FakeTime) -> None:
    stream = io.StringIO()
    log = Log(stream, clock=time)
    log(failed())
    log(failed())
    log.summarise(everything=True)
    log.summarise(everything=True)
    assert [line.get("times") for line in lines(stream)] == [None, 1]


def flood_of(log: Log) -> Callable[[], None]:
    handler = ForeignHandler(log)
    record = logging.LogRecord("warmd.http", logging.WARNING, __file__, 1, "malformed request", None, None)
    return lambda: handler.emit(record)


def test_a_flood_of_another_librarys_errors_is_summarised(time: FakeTime) -> None:
    stream = io.StringIO()
    log = Log(stream, clock=time)
    emit = flood_of(log)
    for _ in range(10_000):
        emit()
    log.summarise(everything=True)
    assert [(line["event"], line.get("times")) for line in lines(stream)] == [
        (FOREIGN, None),
        ("log.repeated", 9_999),
    ]


def test_ever_new_errors_take_no_memory(time: FakeTime) -> None:
    repeats = Repeats(time)
    for number in range(10 * MOST):
        event = failed(str(number))
        assert repeats.is_news(event.name, event.level, event.fields)
        repeats.take()
    assert len(repeats._runs) <= MOST
