"""Every rule of the file, with the place and the sentence that a person gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.prompts.files import SYSTEM, errors_of, errors_of_text
from warmd.prompts import FileError, load_document
from warmd.prompts.jsontext import MAX_PROBLEMS

MESSAGES = [SYSTEM]


def found(tmp_path: Path, value: Any) -> list[tuple[str, str]]:
    """Path and message of each error of a file with this value."""
    return [(error.path, error.message) for error in errors_of(tmp_path, value)]


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"prompts": []},
        {"$schema": "x", "$comment": "x", "x-mine": 1, "prompts": [MESSAGES]},
        {"prompts": [MESSAGES, {"messages": MESSAGES}]},
        [MESSAGES, {"messages": MESSAGES, "$comment": 1, "x-": None}],
        {"defaults": {"priority": -3, "chat_template_kwargs": {}, "$comment": ""}, "prompts": []},
        [[{"role": "developer", "content": ""}]],
        [[{"role": "user", "content": [{"type": "text", "text": ""}, {"type": "audio", "any": 1}]}]],
        [[{"role": "user", "content": []}]],
        [[{"role": "assistant", "content": None, "tool_calls": [{}]}]],
        [[{"role": "assistant", "tool_calls": [{"function": {"arguments": "{bad"}}]}]],
        [[{"role": "tool", "content": "x", "tool_call_id": "1", "anything": {"else": 1}}]],
        [{"messages": MESSAGES, "tools": []}],
        [{"messages": MESSAGES, "name": "x" * 200, "priority": 0}],
        [[{"role": "user", "content": "a\u0000b"}]],
    ],
)
def test_valid_files_are_accepted(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "prompts.json"
    path.write_text(json.dumps(value))
    entries = value["prompts"] if isinstance(value, dict) else value
    assert len(entries) == len(load_document(path).entries)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ("$", "expected a list of prompts or an object with 'prompts', found null")),
        ("x", ("$", "expected a list of prompts or an object with 'prompts', found a string")),
        ({}, ("$", "missing 'prompts': expected a list of prompts")),
        ({"prompts": {}}, ("$.prompts", "expected a list of prompts, found an object")),
        ({"prompts": [], "prompt": 1}, ("$.*", "unknown key; the nearest known one is 'prompts'")),
        ({"prompts": [], "defaults": 1}, ("$.defaults", "expected an object, found a number")),
        (
            {"prompts": [], "defaults": {"$schema": ""}},
            ("$.defaults.$schema", "unknown key; the nearest known one is 'chat_template_kwargs'"),
        ),
        (
            {"prompts": [], "defaults": {"priority": "high"}},
            ("$.defaults.priority", "expected a whole number, found a string"),
        ),
        ([7], ("$[0]", "expected a list of messages or an object with 'messages', found a number")),
        ([[]], ("$[0]", "expected at least one message")),
        ([{"name": "a"}], ("$[0]", "missing 'messages': expected a list of messages")),
        ([{"messages": {}}], ("$[0].messages", "expected a list of messages, found an object")),
        (
            [SYSTEM],
            (
                "$",
                "this looks like the messages of one prompt; expected a list of prompts, each a list of "
                "messages: put another pair of brackets around it",
            ),
        ),
    ],
)
def test_a_wrong_outline_is_explained(tmp_path: Path, value: Any, expected: tuple[str, str]) -> None:
    assert [expected] == found(tmp_path, value)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("name", 3, "expected a string, found a number"),
        ("name", "", "expected a name of 1 to 200 characters"),
        ("name", "x" * 201, "expected a name of 1 to 200 characters"),
        ("name", "a\nb", "a name may not contain control characters"),
        ("name", "#1", "a name may not begin with '#': prompts without a name are called #0, #1, …"),
        ("priority", True, "expected a whole number, found a boolean"),
        ("priority", 1.5, "expected a whole number, found a number"),
        ("priority", None, "expected a whole number, found null"),
        ("chat_template_kwargs", [], "expected an object, found a list"),
        ("tools", {}, "expected a list of tools, found an object"),
        ("tools", None, "expected a list of tools, found null"),
        ("tools_file", "", "expected the path of a file"),
        ("tools_file", "a\0b", "expected the path of a file"),
        ("tools_file", 3, "expected the path of a file"),
    ],
)
def test_a_wrong_value_in_an_entry_is_explained(tmp_path: Path, key: str, value: Any, message: str) -> None:
    assert [(f"$[0].{key}", message)] == found(tmp_path, [{"messages": MESSAGES, key: value}])


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (1, ("", "expected a message object, found a number")),
        ({"content": "x"}, ("", "missing 'role'")),
        ({"role": "", "content": "x"}, (".role", "expected a non-empty string, found an empty string")),
        ({"role": 1, "content": "x"}, (".role", "expected a non-empty string, found a number")),
        ({"role": "user"}, ("", "missing 'content' (or 'content_file')")),
        (
            {"role": "user", "content": None},
            (".content", "null is allowed on an assistant message with 'tool_calls' only"),
        ),
        (
            {"role": "assistant", "content": None, "tool_calls": []},
            (".content", "null is allowed on an assistant message with 'tool_calls' only"),
        ),
        (
            {"role": "user", "content": 1},
            (".content", "expected a string or a list of content parts, found a number"),
        ),
        (
            {"role": "user", "content": ["x"]},
            (".content[0]", "expected a content part object, found a string"),
        ),
        (
            {"role": "user", "content": [{"type": 1}]},
            (".content[0].type", "expected a string, found a number"),
        ),
        (
            {"role": "user", "content": [{"type": "text"}]},
            (".content[0]", "missing 'text': expected a string"),
        ),
        (
            {"role": "user", "content": [{"type": "text", "text": None}]},
            (".content[0].text", "expected a string, found null"),
        ),
        (
            {"role": "user", "content": [{}]},
            (".content[0]", "missing 'type': expected a string"),
        ),
        (
            {"role": "assistant", "content": "", "tool_calls": {}},
            (".tool_calls", "expected a list, found an object"),
        ),
        (
            {"role": "assistant", "content": "", "tool_calls": ["x"]},
            (".tool_calls[0]", "expected an object, found a string"),
        ),
        ({"role": "user", "content_file": 1}, (".content_file", "expected the path of a file")),
    ],
)
def test_a_wrong_message_is_explained(tmp_path: Path, message: Any, expected: tuple[str, str]) -> None:
    assert [("$[0][1]" + expected[0], expected[1])] == found(tmp_path, [[SYSTEM, message]])


def test_inline_and_included_content_exclude_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("x")
    (tmp_path / "a.json").write_text("[]")
    both = {"messages": [{**SYSTEM, "content_file": "a.md"}], "tools": [], "tools_file": "a.json"}
    assert found(tmp_path, [both]) == [
        ("$[0].messages[0].content_file", "expected either 'content' or 'content_file', found both"),
        ("$[0].tools_file", "expected either 'tools' or 'tools_file', found both"),
    ]


def test_all_errors_are_told_at_once_each_at_its_value_or_key(tmp_path: Path) -> None:
    text = """{"defaults": {"priorty": 1},
 "prompts": [
  {"name": "a", "messages": [{"role": "user", "content": 1}]},\r
  {"name": "a", "mesages": []},
  {"messages": [], "priority": NaN}
]}"""
    assert (
        FileError(1, 15, "$.defaults.*", "unknown key; the nearest known one is 'priority'"),
        FileError(
            3,
            58,
            "$.prompts[0].messages[0].content",
            "expected a string or a list of content parts, found a number",
        ),
        FileError(4, 3, "$.prompts[1]", "missing 'messages': expected a list of messages"),
        FileError(4, 12, "$.prompts[1].name", "another prompt has this name already, on line 3"),
        FileError(4, 17, "$.prompts[1].*", "unknown key; the nearest known one is 'messages'"),
        FileError(5, 16, "$.prompts[2].messages", "expected at least one message"),
        FileError(5, 32, "$.prompts[2].priority", "NaN is not allowed in JSON"),
        FileError(5, 32, "$.prompts[2].priority", "expected a whole number, found a number"),
    ) == errors_of_text(tmp_path, text)


def test_a_list_of_errors_ends_somewhere(tmp_path: Path) -> None:
    errors = errors_of(tmp_path, [1] * (MAX_PROBLEMS + 1))
    assert len(errors) == MAX_PROBLEMS + 1
    assert FileError(None, None, "$", "only the first 1000 errors are listed") == errors[-1]


def test_a_key_as_long_as_the_file_is_dealt_with(tmp_path: Path) -> None:
    value = [{"messages": MESSAGES, "messages" * 100_000: 1}]
    assert found(tmp_path, value) == [("$[0].*", "unknown key; the nearest known one is 'messages'")]
