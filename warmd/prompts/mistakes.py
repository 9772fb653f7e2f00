"""Explains JSON that cannot be parsed.

Names kinds of characters only: what stands there may be somebody's text.
"""

from __future__ import annotations

import json
import re

_PUNCTUATION = "{}[],:"
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null", "TRUE": "true", "FALSE": "false"}
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_NUMBER_LIKE = re.compile(r"[-+.0-9]")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)


def explain(text: str, offset: int, wanted: str, comma: int | None = None) -> tuple[int, str]:
    """Say what is wrong where the syntax breaks.

    Args:
        text: The whole text.
        offset: Of the character that does not belong there.
        wanted: What should stand there instead.
        comma: Offset of the comma before it, if it follows one.

    Returns:
        The offset to point at, and a sentence.
    """
    if text.startswith(("//", "/*", "#"), offset):
        return offset, 'comments are not allowed in JSON; a "$comment" key is'
    if comma is not None and text.startswith(("}", "]"), offset):
        return comma, f"trailing comma: remove it, or add what comes before {text[offset]!r}"
    return offset, f"expected {wanted}, found {_found(text, offset)}{_hint(text, offset, wanted)}"


def explain_string(text: str, error: json.JSONDecodeError, start: int) -> tuple[int, str]:
    """Say why a string that starts at an offset cannot be read, from what `scanstring` raised."""
    if error.msg.startswith("Unterminated"):
        return start, "the string has no closing quote"
    if error.msg.startswith("Invalid control character"):
        if text.startswith(("\n", "\r"), error.pos):
            return error.pos, "a string may not contain a raw line break: write \\n, or add the missing quote"
        return error.pos, "a string may not contain a raw control character: write it as an escape"
    # Some of the standard library's positions are one past the backslash.
    offset = text.rfind("\\", start, error.pos + 1)
    return offset, "invalid escape in a string: double the backslash, or write \\uXXXX with four hex digits"


def lone_surrogate(text: str, start: int, end: int) -> int | None:
    """The offset of the first half of a surrogate pair, among the escapes between two offsets."""
    high: re.Match[str] | None = None
    for escape in _ESCAPE.finditer(text, start, end):
        code = int(escape[1] or "0", 16)
        follows = high is not None and high.end() == escape.start()
        if 0xDC00 <= code <= 0xDFFF and follows:
            high = None
            continue
        if high is not None:
            return high.start()
        if 0xDC00 <= code <= 0xDFFF:
            return escape.start()
        high = escape if 0xD800 <= code <= 0xDBFF else None
    return high.start() if high is not None else None


def _found(text: str, offset: int) -> str:
    character = text[offset : offset + 1]
    if not character:
        return "the end of the file"
    if character in _PUNCTUATION:
        return repr(character)
    if character == '"':
        return "a string"
    if character in "'`\u2018\u2019\u201c\u201d":
        return "another kind of quote"
    if _NUMBER_LIKE.match(character):
        return "a number"
    return "a bare word" if _WORD.match(character) else "something else"


def _hint(text: str, offset: int, wanted: str) -> str:
    character = text[offset : offset + 1]
    word = _WORD.match(text, offset)
    if not wanted.startswith(("a JSON value", "a key")):
        return ""
    if word is not None and word.group() in _PYTHON_WORDS:
        return f"; JSON writes {_PYTHON_WORDS[word.group()]}"
    if word is not None or (character and character in "'`\u2018\u2019\u201c\u201d"):
        return "; strings and keys need double quotes"
    if wanted == "a JSON value" and _NUMBER_LIKE.match(character):
        return " that JSON does not allow (no leading zero or plus, digits on both sides of the point)"
    return ""
