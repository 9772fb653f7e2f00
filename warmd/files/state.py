"""Small JSON files in the state folder: replaced whole, private, and harmless when they are broken."""

from __future__ import annotations

import json
import math
import re
import stat
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from warmd.files.atomic import PRIVATE, write_atomically
from warmd.prompts.files import UnreadableError, read_file

LARGEST = 1 << 20
_LARGEST_NUMBER = 1 << 53
"""Beyond it no count or time of ours is, and conversions between the kinds of numbers fail."""

FILL = "u0000"
"""Text in a sample: each of its ends goes on where any escape in text of ours breaks off."""
_WRONG = (
    UnreadableError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)
"""What reading a file that is not ours may raise."""

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Kind:
    """What tells that a file is ours: others may have files of the same name.

    Attributes:
        is_ours: True for what such a file says, and nothing beside it; may fail as `parse` of `read_json`.
        beginning: So much of the text only we write.
        samples: Values of all shapes, with `FILL` as every text: ends of them complete what was cut short.
    """

    is_ours: Callable[[Any], bool]
    beginning: re.Pattern[bytes]
    samples: Collection[Any]


def read_json(path: Path, parse: Callable[[Any], Value], nothing: Value) -> Value:
    """What is in a file of ours, or `nothing` where there is none, or one that makes no sense.

    The next write replaces what makes no sense, whatever it is: a FIFO, or thousands of brackets.

    Args:
        path: Which.
        parse: Makes a value of JSON, and may fail in any way in which looking at a wrong value fails.
        nothing: As good as what cannot be read.
    """
    try:
        return parse(_parsed(read_file(path, LARGEST)))
    except _WRONG:
        return nothing


def is_cut_short(path: Path, kind: Kind) -> bool:
    """True for a file of ours of which only a beginning is there, as after a power cut, or nothing at all."""
    try:
        # Blocks that never came to the disk read as zeros.
        data = read_file(path, LARGEST).rstrip(b"\0")
    except UnreadableError:
        return False
    if not data:
        return True
    if kind.beginning.match(data) is None:
        return False
    # No end completes what has a whole value in front, or anything else that we would not write.
    ends = (json.dumps(sample).encode("ascii") for sample in kind.samples)
    return any(_is(kind, data + end[start:]) for end in ends for start in range(1, len(end)))


def _is(kind: Kind, data: bytes) -> bool:
    try:
        return kind.is_ours(_parsed(data))
    except _WRONG:
        return False


def _parsed(data: bytes) -> Any:
    return json.loads(data, parse_int=_int, parse_float=_float, parse_constant=_refuse)


def _int(text: str) -> int:
    return _bounded(int(text))


def _float(text: str) -> float:
    return _bounded(float(text))


Number = TypeVar("Number", int, float)


def _bounded(number: Number) -> Number:
    if not math.fabs(number) < _LARGEST_NUMBER:
        raise ValueError("too large")
    return number


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def as_number(value: Any) -> float:
    """A number of JSON: text that reads as one, such as "nan", would get past the bounds.

    Raises:
        TypeError: It is something else.
    """
    if type(value) not in (int, float):
        raise TypeError("expected a number")
    return float(value)


def as_count(value: Any) -> int:
    """A whole number of JSON.

    Raises:
        TypeError: It is something else.
    """
    if type(value) is not int:
        raise TypeError("expected a whole number")
    return value


def as_text(value: Any) -> str:
    """Text of JSON.

    Raises:
        TypeError: It is something else.
    """
    if not isinstance(value, str):
        raise TypeError("expected text")
    return value


def write_json(path: Path, value: Any) -> None:
    """Replace a file, or whatever has its name; it is on disk once this returns.

    Raises:
        OSError: It cannot be written; it is as it was.
    """
    _make_way(path)
    write_atomically(path, json.dumps(value).encode("ascii") + b"\n", PRIVATE)


def _make_way(path: Path) -> None:
    """Take away what no file can replace: a folder goes aside with what is in it, a link goes."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        # A folder may take the name of an empty one.
        path.rename(tempfile.mkdtemp(dir=path.parent, prefix=f"{path.name}."))
    elif stat.S_ISLNK(mode):
        # What it leads to may be anything, anywhere.
        path.unlink()
