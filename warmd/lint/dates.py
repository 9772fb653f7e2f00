"""Dates of today and times of now."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, datetime, timedelta

from warmd.lint.spot import Spot

_NEAR = timedelta(days=3)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = (
    r"(?P<{0}>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_YEAR = r"(?P<{0}>(?:19|20)\d\d)"
_DAY = r"(?P<{0}>[0-3]?\d)(?:st|nd|rd|th)?"


def _any_date() -> str:
    """One pattern for the usual ways to write a date; each way has groups of its own."""
    ways = (
        rf"{_YEAR.format('y1')}([-/.])(?P<m1>[01]?\d)\2(?P<d1>[0-3]?\d)",
        # Which of the two is the month depends on the country.
        rf"(?P<d2>[0-3]?\d)([-/.])(?P<m2>[0-3]?\d)\6{_YEAR.format('y2')}",
        rf"{_DAY.format('d3')}(?: of)?[ -]{_MONTH.format('b3')},?[ -]{_YEAR.format('y3')}",
        rf"{_MONTH.format('b4')} {_DAY.format('d4')},? {_YEAR.format('y4')}",
        r"(?P<y5>20\d\d)(?P<m5>[01]\d)(?P<d5>[0-3]\d)",
    )
    return "|".join(ways)


_DATE = re.compile(
    # Not a part of a longer number, word, path or version.
    r"(?<![\w./:+#@-])(?:" + _any_date() + r")(?![\w/+-]|[.:]\d)"
    r"|(?<![\w./:+#@-])(?P<y6>20\d\d)-(?P<m6>[01]\d)-(?P<d6>[0-3]\d)(?=T\d\d:\d\d)",
    re.IGNORECASE,
)
_HOUR = r"(?:[01]?\d|2[0-3]):[0-5]\d"
_TIME = re.compile(rf"(?:T|,? (?:at )?){_HOUR}(?::[0-5]\d(?:\.\d+)?)?(?![\d:])", re.IGNORECASE)
_EPOCH = re.compile(r"(?<![\w.$#/+-])1\d{9}(?:\d{3})?(?![\w/+-]|\.\d)")
_QUOTES = r"[\"'*_`]{0,3}"
_SAYS_NOW = re.compile(
    r"(?:\b(?:current|today'?s|present|local|system)[ _-](?:local |system )?"
    r"(?:date(?:[ _-]?time)?|time(?:stamp)?|day)(?: and time| & time|/time)?\b"
    r"|\btoday(?= is|:)|\b(?:date|time) (?:today|now)\b|\bnow(?= is|:)"
    r"|\b(?:generated|rendered|built|last[ _]updated|updated|retrieved|fetched) (?:at|on)\b|\btimestamp\b"
    r"|\bheutiges datum\b|\bheute(?= ist)|\bdate du jour\b|\bfecha actual\b)"
    rf"{_QUOTES}(?: \([^()\n]{{0,30}}\))?\s?(?:is|ist|est|es)?\s?(?:now\b)?[:=]?{_QUOTES}\s{{0,3}}{_QUOTES}"
    r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day,? |(?:mon|tue|wed|thu|fri|sat|sun),? )?$",
    re.IGNORECASE,
)
_CLOCK = re.compile(rf"(?<![\w.:/-]){_HOUR}(?::[0-5]\d)?(?: ?[ap]\.?m\b)?(?![\d:])", re.IGNORECASE)
_LABEL_REACH = 70


def find_dates(text: str, now: datetime) -> Iterator[Spot]:
    """Dates of about today, and whatever looks like the date or the time now."""
    for match in _DATE.finditer(text):
        dates = _dates(match)
        if not dates:
            continue
        is_near = any(abs(each - now.date()) <= _NEAR for each in dates)
        time = _TIME.match(text, match.end())
        if _is_said_to_be_now(text, match.start()):
            what = "what looks like the time" if time else "what looks like the date"
            yield Spot(match.start(), match.end(), what, is_labelled=True)
        elif is_near:
            yield Spot(match.start(), match.end(), "a timestamp" if time else "a date of about today")
    for match in _CLOCK.finditer(text):
        if _is_said_to_be_now(text, match.start()):
            yield Spot(match.start(), match.end(), "what looks like the time", is_labelled=True)
    for match in _EPOCH.finditer(text):
        if abs(int(match[0][:10]) - now.timestamp()) <= _NEAR.total_seconds():
            yield Spot(match.start(), match.end(), "a timestamp")


def _is_said_to_be_now(text: str, start: int) -> bool:
    return _SAYS_NOW.search(text[max(0, start - _LABEL_REACH) : start]) is not None


def _dates(match: re.Match[str]) -> list[date]:
    """What it may mean; nothing where there is no such day."""
    found = match.groupdict()
    way = next(number for number in "123456" if found[f"y{number}"])
    year, day = int(found[f"y{way}"]), int(found[f"d{way}"])
    if name := found.get(f"b{way}"):
        months = [(_MONTHS.index(name[:3].lower()) + 1, day)]
    else:
        month = int(found[f"m{way}"])
        months = [(month, day), (day, month)] if way == "2" else [(month, day)]
    dates = []
    for month, of_month in months:
        with suppress(ValueError):
            dates.append(date(year, month, of_month))
    return dates
