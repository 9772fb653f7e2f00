"""User texts that a chat template treats specially, read off its source.

A template that asks ``content.startswith('<tool_response>')`` renders earlier turns another way for such a
user text. The source is scanned with patterns, not parsed: what a model ships need not be a template that
our Jinja understands, and a literal too many costs one render.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

_STRING = r"""('(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")"""
_STARTS = re.compile(r"\.startswith\(\s*\(?\s*" + _STRING)
_ENDS = re.compile(r"\.endswith\(\s*\(?\s*" + _STRING)
_INSIDE = (
    re.compile(r"\.(?:r?split|r?partition|replace|r?find|r?index|count)\(\s*" + _STRING),
    re.compile(r"\|\s*(?:replace|split)\(\s*" + _STRING),
    re.compile(_STRING + r"\s+(?:not\s+)?in\b"),
)
_EQUAL = (re.compile(r"[=!]=\s*" + _STRING), re.compile(_STRING + r"\s*[=!]="))
_ASSIGNED = re.compile(r"\bset\s+[\w.]+\s*=\s*" + _STRING)
# Role and key names: a template compares them with fields of a message, not with its text.
_NAME = re.compile(r"\w*")
_PAIRS = 4


def _value(source: str) -> str:
    try:
        value = ast.literal_eval(source)
    except (SyntaxError, ValueError):
        return source[1:-1]
    # An escaped lone surrogate is no text that a request could carry.
    return str(value).encode("utf-8", "ignore").decode("utf-8")


def _found(template: str, *patterns: re.Pattern[str]) -> list[str]:
    values = (_value(match[1]) for pattern in patterns for match in pattern.finditer(template))
    return [value for value in dict.fromkeys(values) if not _NAME.fullmatch(value)]


def _candidates(template: str) -> Iterator[str]:
    starts, ends = _found(template, _STARTS), _found(template, _ENDS)
    yield from [f"{start}x{end}" for start in starts for end in ends][:_PAIRS]
    yield from (f"{text} x" for text in starts)
    yield from (f"x {text}" for text in ends)
    yield from (f"x {text} x" for text in _found(template, *_INSIDE))
    yield from _found(template, *_EQUAL)
    # A marker that is kept in a variable may be used in any of these ways.
    yield from (f"{text}x{text}" for text in _found(template, _ASSIGNED))


def literal_texts(template: str, limit: int) -> list[str]:
    """At most `limit` user texts made of what the template compares text with, the likeliest first."""
    return list(dict.fromkeys(_candidates(template)))[:limit]
