"""What goes over the control socket: one line of JSON there, one back.

A request is ``{"command": "rewarm", "names": ["coder"]}``: the command, and beside it its arguments.
The answer is ``{"ok": true, "result": …}`` or ``{"ok": false, "error": "one line"}``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn

from warmd.control.errors import ControlError, ControlFailedError
from warmd.text import one_line

LONGEST_REQUEST = 1 << 20
"""Bytes of a request, its line break included."""
LONGEST_ANSWER = 64 << 20
"""Bytes of an answer: it may list thousands of entries, or quote a long prompt on its user's own terminal."""


@dataclass(frozen=True, slots=True)
class Request:
    """A command and its arguments."""

    command: str
    arguments: dict[str, Any]


def encode_request(command: str, arguments: dict[str, Any]) -> bytes:
    """A request as a line."""
    return _encode({"command": command, **arguments})


def decode_request(line: bytes) -> Request:
    """Read a request.

    Raises:
        ControlError: It is none; the message quotes nothing of it.
    """
    try:
        value = _decode(line)
    except ValueError:
        raise ControlError("expected one line of JSON") from None
    if not isinstance(value, dict):
        raise ControlError("expected a JSON object")
    command = value.pop("command", None)
    if not isinstance(command, str):
        raise ControlError("expected a command, as text")
    return Request(command, value)


def encode_result(result: Any) -> bytes:
    """The answer to a request that was carried out, as a line.

    Raises:
        ValueError, TypeError: The result is no JSON.
    """
    return _encode({"ok": True, "result": result})


def encode_error(message: str) -> bytes:
    """The answer to a request that was not, as a line."""
    return _encode({"ok": False, "error": one_line(message)})


def decode_answer(line: bytes) -> Any:
    """Read an answer; the result.

    Raises:
        ControlFailedError: The daemon says that it failed, or this is no answer.
    """
    try:
        value = _decode(line)
    except ValueError:
        value = None
    if isinstance(value, dict) and value.get("ok") is True and "result" in value:
        return value["result"]
    if isinstance(value, dict) and value.get("ok") is False and isinstance(value.get("error"), str):
        raise ControlFailedError(one_line(value["error"]))
    raise ControlFailedError("the daemon's answer is not understood: is it another version of warmd?")


def _encode(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


def _decode(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8"), parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
