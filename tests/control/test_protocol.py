"""Lines of JSON: what is none is refused, in one line that quotes nothing."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmd.control.errors import ControlError, ControlFailedError
from warmd.control.protocol import (
    Request,
    decode_answer,
    decode_request,
    encode_error,
    encode_request,
    encode_result,
)
from warmd.text import one_line

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)
ARGUMENTS = st.dictionaries(st.text().filter(lambda key: key != "command"), VALUES, max_size=5)


@given(st.text(), ARGUMENTS)
def test_a_request_arrives_as_it_was_sent(command: str, arguments: dict[str, Any]) -> None:
    line = encode_request(command, arguments)
    assert line.count(b"\n") == 1
    assert decode_request(line) == Request(command, arguments)


@given(VALUES)
def test_a_result_arrives_as_it_was_sent(result: Any) -> None:
    line = encode_result(result)
    assert line.count(b"\n") == 1
    assert decode_answer(line) == result


@given(st.text())
def test_an_error_arrives_as_one_line(message: str) -> None:
    line = encode_error(message)
    assert line.count(b"\n") == 1
    with pytest.raises(ControlFailedError) as caught:
        decode_answer(line)
    assert str(caught.value) == one_line(message)
    assert str(caught.value).isprintable()


@given(st.binary())
def test_any_bytes_are_a_request_or_refused(line: bytes) -> None:
    with contextlib.suppress(ControlError):
        assert isinstance(decode_request(line).command, str)


@given(VALUES)
def test_any_json_is_a_request_or_refused(value: Any) -> None:
    line = json.dumps(value).encode()
    if isinstance(value, dict) and isinstance(value.get("command"), str):
        assert decode_request(line).command == value["command"]
    else:
        with pytest.raises(ControlError):
            decode_request(line)


@given(st.binary())
def test_any_bytes_are_an_answer_or_not_understood(line: bytes) -> None:
    with pytest.raises(ControlFailedError):
        decode_answer(line)


@pytest.mark.parametrize(
    "line",
    [
        b'{"command": "x", "number": NaN}',
        b'{"command": "x", "number": -Infinity}',
        b'{"command": "\xff"}',
        b'\xef\xbb\xbf{"command": "x"}',
        b'{"command": "x"} {}',
        b'{"command": ["x"]}',
        b'{"command": "x", "number": ' + b"9" * 5000 + b"}",
        b'{"command": ' * 100_000,
    ],
)
def test_what_json_does_not_allow_or_nobody_means_is_refused(line: bytes) -> None:
    with pytest.raises(ControlError, match=r"^expected "):
        decode_request(line)


@pytest.mark.parametrize(
    "answer",
    [{}, [], {"ok": True}, {"ok": False}, {"ok": 1, "result": 1}, {"ok": False, "error": 1}, {"ok": "true"}],
)
def test_an_answer_of_another_shape_is_not_understood(answer: Any) -> None:
    with pytest.raises(ControlFailedError, match="another version of warmd"):
        decode_answer(json.dumps(answer).encode())
