"""Why two texts differ, as far as the texts tell."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from warmd.radix import common_length

Cause = Literal[
    "tools_missing",
    "tools_extra",
    "tools_order",
    "tools_key_order",
    "tool_missing",
    "tool_extra",
    "tool_changed",
    "no_system",
    "extra_system",
    "system_text",
    "text",
    "text_ends",
    "date",
    "id",
    "number",
    "line_ends",
    "trailing_space",
    "white_space",
    "unicode",
    "role",
    "turn",
    "message_field",
    "thinking",
    "template_argument",
    "template",
    "not_chat",
    "not_seen",
]

ANOTHER_TEXT = 20
"""Texts that share fewer characters at their beginning are two texts, not two versions of one."""
_NEAR = 48
"""A date is not longer than that."""

_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?"
    r"|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_TIME = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s?[AaPp]\.?[Mm]\b\.?)?(?:\s?(?:Z|UTC|[+-]\d{2}:?\d{2}))?"
_DATES = (
    *(
        re.compile(rf"(?<![\w-]){pattern}(?!\w)")
        for pattern in (
            rf"\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}(?:[T ]{_TIME})?",
            r"\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}",
            rf"(?:{_DAY}\s+)?{_MONTH}\.?(?:\s+{_DAY})?(?:,?\s+\d{{4}})?",
            r"(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?",
            _TIME,
            # Seconds or milliseconds since 1970, between 2017 and 2033.
            r"1[5-9]\d{8}(?:\d{3})?",
        )
    ),
    re.compile(r"\d{4}年\d{1,2}月\d{1,2}日"),
)
_IDS = tuple(
    re.compile(rf"(?<!\w){pattern}(?!\w)")
    for pattern in (
        r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}",
        r"(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{8,64}",
        r"(?=\w*\d)(?=\w*[A-Za-z])[A-Za-z]+[_-][0-9A-Za-z]{8,64}",
    )
)
_NUMBERS = (re.compile(r"\d+(?:[.,]\d+)*"),)

_VOLATILE: Sequence[tuple[Cause, tuple[re.Pattern[str], ...], str]] = (
    ("date", _DATES, "a date or time differs"),
    ("id", _IDS, "an id differs"),
    ("number", _NUMBERS, "a number differs"),
)


@dataclass(frozen=True, slots=True)
class Reason:
    """A cause and what to tell a person about it."""

    cause: Cause
    message: str


def text_reason(entry: str, request: str) -> Reason:
    """Why an entry's text and a request's, which differ, do so."""
    return (
        _white_space(entry, request)
        or volatile_reason(entry, request)
        or _unicode(entry, request)
        or _end(entry, request)
        or _other(entry, request)
    )


def volatile_reason(entry: str, request: str) -> Reason | None:
    """The cause when the texts part inside something that changes by itself."""
    at = common_length(entry, request)
    for cause, patterns, message in _VOLATILE:
        if any(_part_inside(pattern, entry, request, at) for pattern in patterns):
            if _masked(entry, patterns) == _masked(request, patterns):
                message += ", and nothing else in this text"
            return Reason(cause, message)
    return None


def _part_inside(pattern: re.Pattern[str], entry: str, request: str, at: int) -> bool:
    """True when both texts have a match of the pattern that begins at the same place and spans `at`."""
    start = max(0, at - _NEAR)
    # Whole matches only: a text cut in the middle of a number would show another number.
    spans = [
        {
            found.start()
            for found in pattern.finditer(text, start, at + _NEAR)
            if found.start() <= at <= found.end()
        }
        for text in (entry, request)
    ]
    return bool(spans[0] & spans[1])


def _masked(text: str, patterns: Sequence[re.Pattern[str]]) -> str:
    for pattern in patterns:
        text = pattern.sub("\0", text)
    return text


def _white_space(entry: str, request: str) -> Reason | None:
    if _line_ends(entry) == _line_ends(request):
        return Reason(
            "line_ends",
            f"line ends differ: {_shown_ends(entry)} in the entry, {_shown_ends(request)} in the request",
        )
    if entry.rstrip() == request.rstrip():
        longer = "entry" if len(entry) > len(request) else "request"
        return Reason(
            "trailing_space", f"the {longer} has white space at the end of the text that the other has not"
        )
    if _stripped_lines(entry) == _stripped_lines(request):
        return Reason(
            "trailing_space", "white space at the end of lines differs, and nothing else in this text"
        )
    if "".join(entry.split()) == "".join(request.split()):
        return Reason("white_space", "white space differs, and nothing else in this text")
    return None


def _line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _shown_ends(text: str) -> str:
    return "CRLF" if "\r\n" in text else "CR" if "\r" in text else "LF"


def _stripped_lines(text: str) -> list[str]:
    return [line.rstrip() for line in _line_ends(text).rstrip().split("\n")]


def _unicode(entry: str, request: str) -> Reason | None:
    if _plain(entry) == _plain(request):
        return Reason("unicode", "the same characters are encoded another way, or some cannot be seen")
    return None


def _plain(text: str) -> str:
    """A text without what the eye does not see."""
    composed = unicodedata.normalize("NFC", text)
    return "".join(character for character in composed if unicodedata.category(character) != "Cf")


def _end(entry: str, request: str) -> Reason | None:
    if request.startswith(entry) and entry:
        return Reason("text_ends", "the request's text goes on where the entry's ends")
    if entry.startswith(request) and request:
        return Reason("text_ends", "the request's text ends where the entry's goes on")
    return None


def _other(entry: str, request: str) -> Reason:
    at = common_length(entry, request)
    if at < ANOTHER_TEXT:
        return Reason("text", "another text")
    return Reason("text", f"the text differs from character {at + 1:,} on")
