"""JSON with positions: values as `json.loads` gives them, and every problem with its place.

The standard parser stops at the first problem, tells no positions of values, and accepts duplicate keys, NaN,
lone surrogates and numbers that become infinite. Strings are scanned by the standard library's C code, so the
long strings that prompts consist of cost next to nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined] # public in practice, missing in typeshed
from typing import Any

from warmd.prompts.mistakes import explain, explain_string, lone_surrogate

MAX_DEPTH = 100
MAX_DIGITS = 4300
"""Python refuses to convert longer integers."""
MAX_PROBLEMS = 1000
"""More are not collected: a large file could be wrong in millions of places."""

Path = tuple[str | int, ...]
"""The keys and indexes that lead to a value."""

_SPACE = re.compile(r"[ \t\n\r]*")
# White space is matched together with what must stand beside it: that halves the steps of a parse.
_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
_AFTER_MEMBER = re.compile(r"[ \t\n\r]*([,}])[ \t\n\r]*")
_AFTER_ITEM = re.compile(r"[ \t\n\r]*([,\]])[ \t\n\r]*")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?(?![0-9A-Za-z_.])")
_WORD = re.compile(r"-?[A-Za-z_][A-Za-z_0-9]*")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None}
_NOT_NUMBERS = ("NaN", "Infinity", "-Infinity")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong at an offset (in characters) of the text."""

    offset: int
    path: Path
    message: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """The outcome of parsing.

    Attributes:
        value: The parsed value; None when the syntax is broken.
        problems: In the order of the text. After a broken syntax nothing further is looked at.
        is_complete: False when the syntax is broken.
    """

    value: Any
    problems: tuple[Problem, ...]
    is_complete: bool


def parse(text: str) -> Parsed:
    """Parse a whole JSON text, given without byte order mark. Never raises."""
    parser = _Parser(text)
    try:
        value = parser.document()
    except _BrokenSyntaxError as broken:
        parser.report(broken.offset, broken.message)
        return Parsed(None, tuple(parser.problems), is_complete=False)
    return Parsed(value, tuple(parser.problems), is_complete=True)


def locate(text: str, paths: Collection[Path]) -> dict[Path, tuple[int, int]]:
    """Find values in a text whose syntax is sound, by parsing it again.

    Returns:
        For each path the offsets of the value and of the key before it (of the value, where there is no key).
    """
    parser = _Parser(text, frozenset(paths))
    parser.document()
    return parser.positions


class _BrokenSyntaxError(Exception):
    """The syntax is broken here."""

    def __init__(self, offset: int, message: str) -> None:
        self.offset = offset
        self.message = message


class _Parser:
    def __init__(self, text: str, wanted: frozenset[Path] = frozenset()) -> None:
        self.text = text
        self.problems: list[Problem] = []
        self.positions: dict[Path, tuple[int, int]] = {}
        self._wanted = wanted
        self._path: list[str | int] = []
        self._has_surrogates = _SURROGATE_ESCAPE.search(text) is not None

    def report(self, offset: int, message: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(offset, tuple(self._path), message))

    def document(self) -> Any:
        start = self._skip(0)
        if start == len(self.text):
            raise _BrokenSyntaxError(
                0, "the file is empty; expected a JSON list or object ([] keeps nothing warm)"
            )
        value, end = self._value(start, start)
        end = self._skip(end)
        if end < len(self.text):
            raise self._unexpected(end, "the end of the file after the JSON value")
        return value

    def _skip(self, offset: int) -> int:
        """The offset of the next character that is not white space."""
        found = _SPACE.match(self.text, offset)
        return found.end() if found else offset

    def _unexpected(self, offset: int, wanted: str, comma: int | None = None) -> _BrokenSyntaxError:
        return _BrokenSyntaxError(*explain(self.text, self._skip(offset), wanted, comma))

    def _value(self, offset: int, key_offset: int) -> tuple[Any, int]:
        if self._wanted:
            path = tuple(self._path)
            if path in self._wanted:
                self.positions[path] = offset, key_offset
        character = self.text[offset : offset + 1]
        if character == '"':
            return self._string(offset)
        if character == "{":
            return self._object(offset)
        if character == "[":
            return self._list(offset)
        return self._scalar(offset)

    def _string(self, offset: int) -> tuple[str, int]:
        try:
            value, end = scanstring(self.text, offset + 1, True)
        except json.JSONDecodeError as error:
            found = error
        else:
            if self._has_surrogates and (lone := lone_surrogate(self.text, offset, end)) is not None:
                self.report(lone, "half of a surrogate pair (a lone \\ud800-\\udfff), which is no text")
            return value, end
        # Out of the handler: the caught error holds the whole text and would stay attached to ours.
        raise _BrokenSyntaxError(*explain_string(self.text, found, offset))

    def _object(self, offset: int) -> tuple[dict[str, Any], int]:
        text, path = self.text, self._path
        offset = self._open(offset)
        found: dict[str, Any] = {}
        if text.startswith("}", offset):
            return found, offset + 1
        comma = None
        while True:
            if not text.startswith('"', offset):
                raise self._unexpected(offset, "a key in double quotes", comma)
            key, end = self._string(offset)
            path.append(key)
            if key in found:
                self.report(offset, "this key occurs twice in one object")
            colon = _COLON.match(text, end)
            if colon is None:
                raise self._unexpected(end, "a colon after the key")
            found[key], end = self._value(colon.end(), offset)
            path.pop()
            after = _AFTER_MEMBER.match(text, end)
            if after is None:
                raise self._unexpected(end, "a comma or '}'")
            comma, offset = after.start(1), after.end()
            if after[1] == "}":
                return found, offset

    def _list(self, offset: int) -> tuple[list[Any], int]:
        text, path = self.text, self._path
        offset = self._open(offset)
        found: list[Any] = []
        if text.startswith("]", offset):
            return found, offset + 1
        path.append(0)
        while True:
            value, end = self._value(offset, offset)
            found.append(value)
            path[-1] = len(found)
            after = _AFTER_ITEM.match(text, end)
            if after is None:
                path.pop()
                raise self._unexpected(end, "a comma or ']'")
            offset = after.end()
            if after[1] == "]":
                path.pop()
                return found, offset
            if text.startswith(("]", "}"), offset):
                path.pop()
                raise self._unexpected(offset, "a value", after.start(1))

    def _open(self, offset: int) -> int:
        """Step into an object or a list, to its first item."""
        if len(self._path) >= MAX_DEPTH:
            raise _BrokenSyntaxError(offset, f"nested deeper than {MAX_DEPTH} levels")
        return self._skip(offset + 1)

    def _scalar(self, offset: int) -> tuple[Any, int]:
        word = _WORD.match(self.text, offset)
        if word is not None:
            return self._word(word.group(), offset), word.end()
        number = _NUMBER.match(self.text, offset)
        if number is None:
            raise self._unexpected(offset, "a JSON value")
        return self._number(number, offset), number.end()

    def _word(self, word: str, offset: int) -> Any:
        if word in _NOT_NUMBERS:
            self.report(offset, f"{word} is not allowed in JSON")
            return math.nan
        if word not in _CONSTANTS:
            raise self._unexpected(offset, "a JSON value")
        return _CONSTANTS[word]

    def _number(self, number: re.Match[str], offset: int) -> int | float:
        text, digits, fraction, exponent = number.group(0, 1, 2, 3)
        if fraction or exponent:
            value = float(text)
            if math.isinf(value):
                self.report(offset, "the number is too large")
            return value
        try:
            if len(digits) <= MAX_DIGITS:
                return int(text)
        except ValueError:
            # PYTHONINTMAXSTRDIGITS can make the limit smaller.
            pass
        self.report(offset, f"the number has too many digits (more than {MAX_DIGITS} are never read)")
        return 0
