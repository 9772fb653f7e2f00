"""JSON with positions: values as `json.loads` gives them, and every problem with its place.

The standard parser stops at the first problem, tells no positions of values, and accepts duplicate keys, NaN,
lone surrogates and numbers that become infinite. Strings are scanned by the standard library's C code, so the
long strings that prompts consist of cost next to nothing.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from json.decoder import scanstring  # type: ignore[attr-defined] # public in practice, missing in typeshed
from typing import Any

MAX_DEPTH = 100
MAX_DIGITS = 4300
"""Python refuses to convert longer integers."""

Path = tuple[str | int, ...]

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORD = re.compile(r"-?[A-Za-z_][A-Za-z_0-9]*")
_SURROGATE = re.compile("[\ud800-\udfff]")
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


class _SyntaxError(Exception):
    def __init__(self, offset: int, message: str) -> None:
        self.offset = offset
        self.message = message


def parse(text: str, positions: dict[Path, tuple[int, int]] | None = None) -> Parsed:
    """Parse a JSON text.

    Args:
        text: The whole text, without a byte order mark.
        positions: Filled, if given, with the offset of each value and of the key before it (or of the value
            again where there is no key).
    """
    parser = _Parser(text, positions)
    try:
        value = parser.document()
    except _SyntaxError as error:
        parser.report(error.offset, error.message)
        return Parsed(None, tuple(parser.problems), is_complete=False)
    return Parsed(value, tuple(parser.problems), is_complete=True)


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """1-based line and column, the column in characters."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


class _Parser:
    def __init__(self, text: str, positions: dict[Path, tuple[int, int]] | None) -> None:
        self.text = text
        self.problems: list[Problem] = []
        self._positions = positions
        self._path: list[str | int] = []

    def report(self, offset: int, message: str) -> None:
        self.problems.append(Problem(offset, tuple(self._path), message))

    def document(self) -> Any:
        start = self._skip(0)
        if start == len(self.text):
            raise _SyntaxError(
                start, "the file is empty; expected a JSON list or object ([] keeps nothing warm)"
            )
        value, end = self._value(start, start)
        end = self._skip(end)
        if end < len(self.text):
            raise _SyntaxError(end, "expected the end of the file after the JSON value")
        return value

    def _skip(self, offset: int) -> int:
        """The offset of the next character that is not white space."""
        found = _SPACE.match(self.text, offset)
        end = found.end() if found else offset
        if self.text.startswith(("//", "/*", "#"), end):
            raise _SyntaxError(end, 'comments are not allowed in JSON; a "$comment" key is')
        return end

    def _value(self, offset: int, key_offset: int) -> tuple[Any, int]:
        if self._positions is not None:
            self._positions[tuple(self._path)] = (offset, key_offset)
        character = self.text[offset : offset + 1]
        if character == '"':
            return self._string(offset)
        if character in ("{", "["):
            if len(self._path) >= MAX_DEPTH:
                raise _SyntaxError(offset, f"nested deeper than {MAX_DEPTH} levels")
            return self._object(offset) if character == "{" else self._list(offset)
        return self._scalar(offset)

    def _string(self, offset: int) -> tuple[str, int]:
        try:
            value, end = scanstring(self.text, offset + 1, True)
        except json.JSONDecodeError as error:
            raise _SyntaxError(*_explain_string(error, offset)) from None
        if not value.isascii() and _SURROGATE.search(value):
            self.report(
                offset, "the string has half of a surrogate pair (a lone \\ud800-\\udfff), which is no text"
            )
        return value, end

    def _object(self, offset: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        offset = self._skip(offset + 1)
        if self.text.startswith("}", offset):
            return found, offset + 1
        while True:
            offset = self._member(found, offset)
            offset = self._skip(offset)
            if self.text.startswith("}", offset):
                return found, offset + 1
            offset = self._comma(offset, "}")

    def _member(self, found: dict[str, Any], offset: int) -> int:
        if not self.text.startswith('"', offset):
            raise _SyntaxError(offset, f"expected a key in double quotes, found {self._found(offset)}")
        key, end = self._string(offset)
        if key in found:
            self.report(offset, "this key occurs twice in one object")
        end = self._skip(end)
        if not self.text.startswith(":", end):
            raise _SyntaxError(end, f"expected a colon after the key, found {self._found(end)}")
        self._path.append(key)
        found[key], end = self._value(self._skip(end + 1), offset)
        self._path.pop()
        return end

    def _list(self, offset: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        offset = self._skip(offset + 1)
        if self.text.startswith("]", offset):
            return found, offset + 1
        while True:
            self._path.append(len(found))
            value, offset = self._value(offset, offset)
            self._path.pop()
            found.append(value)
            offset = self._skip(offset)
            if self.text.startswith("]", offset):
                return found, offset + 1
            offset = self._comma(offset, "]")

    def _comma(self, offset: int, closing: str) -> int:
        """Step over a comma to the next item."""
        if not self.text.startswith(",", offset):
            raise _SyntaxError(offset, f"expected a comma or {closing!r}, found {self._found(offset)}")
        following = self._skip(offset + 1)
        if self.text.startswith(("}", "]"), following):
            raise _SyntaxError(offset, f"trailing comma: remove it, or add what comes before {closing!r}")
        return following

    def _scalar(self, offset: int) -> tuple[Any, int]:
        word = _WORD.match(self.text, offset)
        if word is not None:
            return self._word(word.group(), offset), word.end()
        number = _NUMBER.match(self.text, offset)
        if number is None:
            raise _SyntaxError(offset, f"expected a JSON value, found {self._found(offset)}")
        return self._number(number, offset), number.end()

    def _word(self, word: str, offset: int) -> Any:
        if word in _NOT_NUMBERS:
            self.report(offset, f"{word} is not allowed in JSON")
            return None
        if word not in _CONSTANTS:
            raise _SyntaxError(offset, "expected a JSON value, found a bare word; strings need double quotes")
        return _CONSTANTS[word]

    def _number(self, number: re.Match[str], offset: int) -> int | float | None:
        text = number.group()
        if number.group(1) or number.group(2):
            value = float(text)
            if math.isinf(value):
                self.report(offset, "the number is too large")
            return value
        if len(text) > MAX_DIGITS:
            self.report(offset, f"the number has more than {MAX_DIGITS} digits")
            return None
        return int(text)

    def _found(self, offset: int) -> str:
        """Names what stands at an offset, by its kind only: it could be a piece of a prompt."""
        character = self.text[offset : offset + 1]
        if not character:
            return "the end of the file"
        if character in "{}[],:":
            return repr(character)
        return {"'": "a single quote (strings need double quotes)", '"': "a string"}.get(
            character, "something else"
        )


def _explain_string(error: json.JSONDecodeError, offset: int) -> tuple[int, str]:
    if error.msg.startswith("Unterminated"):
        return offset, "the string has no closing quote"
    if error.msg.startswith("Invalid control character"):
        return error.pos, "a string may not contain a raw line break or control character; write \\n"
    return error.pos, "invalid escape in a string: a backslash must be doubled"
