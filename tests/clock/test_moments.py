"""At which other moments a prompt would look different."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmd.clock.moments import other_days, same_day, signature, unit_of, until_midnight

DATES = st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1))


@pytest.mark.parametrize("template_format", ["%d %b %Y", "%A", "%j", "%x", "", "now", "%%H", "%y/%m/%d"])
@given(now=DATES)
def test_dates_last_the_whole_day(template_format: str, now: datetime) -> None:
    assert unit_of([template_format], now) is None


@pytest.mark.parametrize(
    ("template_format", "unit"),
    [
        *((each, "second") for each in ("%S", "%X", "%f", "%s", "%c", "%T")),
        *((each, "minute") for each in ("%M", "%R", "%H:%M")),
        *((each, "hour") for each in ("%I o'clock", "%H", "%p")),
    ],
)
@given(now=DATES)
def test_times_have_a_smallest_unit(template_format: str, unit: str, now: datetime) -> None:
    assert unit_of(["%d", template_format], now) == unit


@given(DATES)
def test_moments_of_the_day_are_of_that_day_and_differ_in_their_unit(now: datetime) -> None:
    for unit, moment in same_day(now):
        assert moment.date() == now.date()
        assert getattr(moment, unit) != getattr(now, unit)


@pytest.mark.parametrize("template_format", ["%d", "%a", "%w", "%B", "%Y", "%y", "%j", "%U", "%x", "%u"])
@given(now=DATES)
def test_whatever_a_date_consists_of_differs_on_one_of_the_other_days(
    template_format: str, now: datetime
) -> None:
    formats = [template_format]
    told = {signature(moment, formats) for moment in other_days(now)}
    assert told - {signature(now, formats)}


def test_the_calendar_may_end() -> None:
    assert list(other_days(datetime(9999, 12, 30))) == [datetime(9999, 12, 31)]


@given(DATES)
def test_midnight_is_less_than_a_day_away_and_begins_the_next_one(now: datetime) -> None:
    seconds = until_midnight(now)
    assert 0 <= seconds < 86_400
    assert (now + timedelta(seconds=seconds + 0.05)).date() == now.date() + timedelta(days=1)


def test_the_last_moment_of_a_day_has_nothing_left() -> None:
    assert until_midnight(datetime.combine(date(2026, 11, 30), datetime.max.time())) == 0
