"""Why two texts differ."""

from __future__ import annotations

import pytest

from warmd.explain.causes import text_reason

HEAD = "You are a careful reviewer of code. "

CASES = {
    "iso date": ("date", "Today is 2025-06-01.", "Today is 2025-06-02."),
    "iso date and time": ("date", "Now: 2025-06-01T10:00:00Z", "Now: 2025-06-01T10:00:01Z"),
    "month": ("date", "Today is June 1, 2025.", "Today is July 1, 2025."),
    "day of a month": ("date", "Today is 1 June 2025.", "Today is 12 June 2025."),
    "weekday": ("date", "It is Monday today", "It is Tuesday today"),
    "weekday and date": ("date", "It is Monday, 2 June", "It is Tuesday, 3 June"),
    "time": ("date", "It is 9:05 now", "It is 10:15 now"),
    "time of the day": ("date", "at 10:05 AM", "at 10:05 PM"),
    "american": ("date", "on 6/1/2025,", "on 6/2/2025,"),
    "german": ("date", "am 01.06.2025.", "am 02.06.2025."),
    "chinese": ("date", "今天是2025年6月1日。", "今天是2025年6月2日。"),
    "epoch": ("date", "t=1748736000;", "t=1748822400;"),
    "uuid": (
        "id",
        "session 0b5e1f2a-8a1d-4c3e-9a77-1f2e3d4c5b6a",
        "session 9c5e1f2a-8a1d-4c3e-9a77-1f2e3d4c5b6a",
    ),
    "request id": ("id", "id req_8f3kd93kfj2 end", "id req_1f3kd93kfj2 end"),
    "hash": ("id", "commit 0f3c9d21aa end", "commit 1f3c9d21ab end"),
    "count": ("number", "You have 17 unread mails", "You have 3 unread mails"),
    "line ends": ("line_ends", "one\r\ntwo\r\n", "one\ntwo\n"),
    "old line ends": ("line_ends", "one\rtwo", "one\ntwo"),
    "last line break": ("trailing_space", "one two\n", "one two"),
    "space at the end": ("trailing_space", "one two", "one two  "),
    "spaces at line ends": ("trailing_space", "one  \ntwo\t\nthree", "one\ntwo\nthree"),
    "indentation": ("white_space", "one\n  two", "one\n\ttwo"),
    "no-break space": ("white_space", "one two", "one\u00a0two"),
    "composed": ("unicode", "caf\u00e9", "cafe\u0301"),
    "zero width": ("unicode", "one\u200btwo", "onetwo"),
    "goes on": ("text_ends", "You are a reviewer.", "You are a reviewer. Be brief."),
    "ends": ("text_ends", "You are a reviewer. Be brief.", "You are a reviewer."),
    "another word": ("text", "Never guess.", "Never lie."),
    "may is no month here": ("text", "You may go.", "You can go."),
    "version": ("number", "version 2.1.9 of it", "version 2.2.0 of it"),
}


@pytest.mark.parametrize(("cause", "entry", "request_"), CASES.values(), ids=CASES)
def test_the_likely_cause(cause: str, entry: str, request_: str) -> None:
    assert text_reason(HEAD + entry, HEAD + request_).cause == cause
    assert text_reason(HEAD + request_, HEAD + entry).cause == cause


def test_what_else_differs_is_told() -> None:
    alone = text_reason(HEAD + "On 2025-06-01 and 10:00.", HEAD + "On 2025-06-02 and 11:30.")
    assert alone.message == "a date or time differs, and nothing else in this text"
    more = text_reason(HEAD + "On 2025-06-01: code.", HEAD + "On 2025-06-02: prose.")
    assert more.message == "a date or time differs"


def test_which_line_ends() -> None:
    assert text_reason("a\r\nb", "a\nb").message == "line ends differ: CRLF in the entry, LF in the request"


def test_who_has_the_white_space() -> None:
    assert text_reason("a\n", "a").message.startswith("the entry has white space at the end")
    assert text_reason("a", "a ").message.startswith("the request has white space at the end")


def test_texts_that_share_little_are_two_texts() -> None:
    assert text_reason("You are a poet.", "You are a plumber.").message == "another text"
    differs = text_reason(HEAD + "Answer briefly", HEAD + "Answer at length")
    assert differs.message == f"the text differs from character {len(HEAD) + 8} on"


def test_long_texts_take_no_time() -> None:
    long = "Lorem ipsum 2025-01-01 dolor 12:30 a8f30cc1 sit amet. " * 20_000
    assert text_reason(long + "2025-06-01", long + "2025-06-02").cause == "date"
    assert text_reason(long + "x", long + "y").cause == "text"
