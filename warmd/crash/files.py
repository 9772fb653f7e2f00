"""Small JSON files in the state folder: replaced whole, private, and harmless when they are broken."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from warmd.capture.files import PRIVATE, write_atomically
from warmd.prompts.files import UnreadableError, read_file

LARGEST = 1 << 20
_LARGEST_NUMBER = 1 << 53
"""Beyond it no count or time of ours is, and conversions between the kinds of numbers fail."""

Value = TypeVar("Value")


def read_json(path: Path, parse: Callable[[Any], Value], nothing: Value) -> Value:
    """What is in a file of ours, or `nothing` where there is none, or one that makes no sense.

    The next write replaces what makes no sense, whatever it is: a FIFO, or thousands of brackets.

    Args:
        path: Which.
        parse: Makes a value of JSON, and may fail in any way in which looking at a wrong value fails.
        nothing: As good as what cannot be read.
    """
    try:
        text = read_file(path, LARGEST)
        return parse(json.loads(text, parse_int=_int, parse_float=_float, parse_constant=_refuse))
    except (UnreadableError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
        return nothing
    except RecursionError:
        return nothing


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


def write_json(path: Path, value: Any) -> None:
    """Replace a file; it is on disk once this returns.

    Raises:
        OSError: It cannot be written; it is as it was.
    """
    write_atomically(path, json.dumps(value).encode("ascii") + b"\n", PRIVATE)
