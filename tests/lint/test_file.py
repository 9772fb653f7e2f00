"""What in a prompts file will defeat caching, with lines and columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.lint.corpus import NOW
from warmd.lint import lint_file
from warmd.prompts import FileError, load_document

WHY = "if it changes from request to request, nothing behind it is served warm"
DATE = f"what looks like the date: {WHY}"
UUID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
TOOL = {"type": "function", "function": {"name": "read", "description": "Read a file."}}
SWAPPED = {"function": {"description": "Read a file.", "name": "read"}, "type": "function"}


def lint(path: Path, value: Any, **files: str) -> list[FileError]:
    for name, text in files.items():
        (path / name.replace("_", ".", 1)).write_text(text, encoding="utf-8")
    text = value if isinstance(value, str) else json.dumps(value)
    (path / "prompts.json").write_text(text, encoding="utf-8")
    return list(lint_file(load_document(path / "prompts.json"), NOW, 1 << 20))


def system(content: Any) -> dict[str, Any]:
    return {"role": "system", "content": content}


def test_a_message_s_text_is_told_where_it_stands_behind_escapes(tmp_path: Path) -> None:
    content = '"Be \\"kind\\".\\n\\ud83d\\ude00\\u00e9 Today is 2026-11-30."'
    text = '[\n  [{"role": "system", "content": ' + content + "}]\n]"
    expected = [FileError(2, text.splitlines()[1].index("2026") + 1, "$[0][0].content", DATE)]
    assert expected == lint(tmp_path, text)


def test_each_kind_of_thing_is_told_once_in_a_text_with_the_number_of_others(tmp_path: Path) -> None:
    text = f"A {UUID}, B 1{UUID[1:]}, C 2{UUID[1:]}. Today is 2026-11-30."
    found = lint(tmp_path, [[system(text)]])
    assert [error.message for error in found] == [f"a UUID (and 2 more): {WHY}", DATE]


def test_parts_tools_arguments_and_template_arguments_are_looked_at(tmp_path: Path) -> None:
    call = {"function": {"name": "x", "arguments": {"day": "2026-11-30"}}}
    tool = {"function": {"name": "x", "description": f"Of {UUID}."}}
    value = {
        "defaults": {"chat_template_kwargs": {"date_string": "30 Nov 2026"}},
        "prompts": [
            {
                "messages": [
                    system([{"type": "text", "text": "Today is 2026-11-30."}]),
                    {"role": "assistant", "tool_calls": [call]},
                ],
                "tools": [tool],
                "chat_template_kwargs": {"today": "2026-11-29"},
            }
        ],
    }
    assert [error.path for error in lint(tmp_path, value)] == [
        "$.defaults.chat_template_kwargs.*",
        "$.prompts[0].messages[0].content[0].text",
        "$.prompts[0].messages[1].tool_calls[0].function.arguments.*",
        "$.prompts[0].tools[0].function.description",
        "$.prompts[0].chat_template_kwargs.*",
    ]


def test_a_last_user_turn_is_no_part_of_the_prefix(tmp_path: Path) -> None:
    turns = [system("Be kind."), {"role": "user", "content": "Today is 2026-11-30."}]
    assert lint(tmp_path, [turns]) == []
    assert len(lint(tmp_path, [[*turns, {"role": "assistant", "content": "Yes."}]])) == 1


def test_an_included_file_is_told_once_with_the_place_in_it(tmp_path: Path) -> None:
    message = {"role": "system", "content_file": "coder.md"}
    found = lint(tmp_path, [[message], [message]], coder_md="# Rules\n\nToday is 2026-11-30.\n")
    text = (tmp_path / "prompts.json").read_text("utf-8")
    expected = FileError(1, text.index('"coder.md"') + 1, "$[0][0].content_file", f"coder.md:3:10: {DATE}")
    assert found == [expected]


def test_a_tools_file_is_told_with_the_place_and_the_path_in_it(tmp_path: Path) -> None:
    tools = json.dumps([TOOL, {"function": {"description": f"Of {UUID}."}}], indent=1)
    found = lint(tmp_path, [{"messages": [system("Hi.")], "tools_file": "tools.json"}], tools_json=tools)
    line = next(number for number, text in enumerate(tools.splitlines(), 1) if UUID in text)
    column = tools.splitlines()[line - 1].index(UUID) + 1
    message = f"tools.json:{line}:{column}: a UUID: {WHY} (at $[1].function.description)"
    assert [(error.path, error.message) for error in found] == [("$[0].tools_file", message)]


@pytest.mark.parametrize("key", ["tools", "entries"])
def test_what_differs_in_the_order_of_keys_only_is_told(tmp_path: Path, key: str) -> None:
    other = system("Another.") if key == "tools" else system("One.")
    value = [
        {"messages": [system("One.")], "tools": [TOOL]},
        {"messages": [other], "tools": [SWAPPED]},
        {"messages": [system("Third.")], "tools": [SWAPPED, TOOL]},
    ]
    found = lint(tmp_path, "[\n" + ",\n".join(map(json.dumps, value)) + "]")
    keys = "but with its keys in another order: they share no state from there on"
    expected = {
        "tools": [(3, "$[1].tools[0]", f"the same tool as the one on line 2, {keys}")],
        "entries": [(3, "$[1]", f"the same as the prompt on line 2, {keys}")],
    }
    assert [(error.line, error.path, error.message) for error in found] == expected[key]


def test_a_tool_of_a_file_in_another_order_is_told_at_the_file_s_name(tmp_path: Path) -> None:
    value = {
        "prompts": [
            {"messages": [system("One.")], "tools": [TOOL]},
            {"messages": [system("Two.")], "tools_file": "tools.json"},
        ]
    }
    found = lint(tmp_path, value, tools_json=json.dumps([SWAPPED]))
    assert [error.path for error in found] == ["$.prompts[1].tools_file"]


def test_the_order_of_template_arguments_and_equal_entries_are_nothing_to_tell(tmp_path: Path) -> None:
    value = [
        {"messages": [system("One.")], "tools": [TOOL], "chat_template_kwargs": {"a": 1, "b": 2}},
        {"messages": [system("One.")], "tools": [TOOL], "chat_template_kwargs": {"b": 2, "a": 1}},
        {"messages": [system("One.")], "tools": [TOOL]},
    ]
    assert lint(tmp_path, value) == []


def test_at_most_a_hundred_are_told(tmp_path: Path) -> None:
    found = lint(tmp_path, [[system(f"Today is 2026-11-30, {number}.")] for number in range(150)])
    assert len(found) == 101
    assert found[-1] == FileError(None, None, "$", "only the first 100 warnings are listed")


@pytest.mark.parametrize("now", [None, "[", "[]"])
def test_a_file_that_has_changed_meanwhile_has_no_warnings(tmp_path: Path, now: str | None) -> None:
    path = tmp_path / "prompts.json"
    path.write_text('[[{"role": "system", "content": "Today is 2026-11-30."}]]')
    document = load_document(path)
    path.unlink()
    if now is not None:
        path.write_text(now)
    assert lint_file(document, NOW, 1 << 20) == ()


def test_no_text_of_the_file_is_in_a_warning(tmp_path: Path) -> None:
    secret = {"my secret key": f"secret word. Today is 2026-11-30. {UUID} nonce: 9f8a7b6c5d request #4711"}
    found = lint(tmp_path, [{"messages": [system("Hi.")], "chat_template_kwargs": secret}])
    assert len(found) == 4
    assert not [error for error in found if "secret" in repr(error) or "4711" in repr(error)]
