"""An entry put into a text: everything else stays as it is, byte for byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmd.capture.insert import Edit, add_entry, replace_entry
from warmd.prompts.jsontext import parse
from warmd.prompts.validate import entries_of, validate

NEW = {"name": "new", "messages": [{"role": "system", "content": 'Hi, \u2028 "é" \\ 😀'}]}
LINE = json.dumps(NEW, ensure_ascii=False)


def lines(base: str, indent: str = "  ", newline: str = "\n") -> str:
    return json.dumps(NEW, ensure_ascii=False, indent=indent).replace("\n", newline + base)


A = '[{"role": "system", "content": "a"}]'

EXAMPLES: dict[str, tuple[str, str]] = {
    "empty list": ("[]", f"[\n  {lines('  ')}\n]"),
    "empty list, spaces": ("[ ]\n", f"[\n  {lines('  ')}\n ]\n"),
    "empty list, lines": ("[\n]\n", f"[\n  {lines('  ')}\n]\n"),
    "empty object form": ('{"prompts": []}\n', f'{{"prompts": [\n  {lines("  ")}\n]}}\n'),
    "empty, indented": (
        '{\n\t"prompts": []\n}\n',
        '{\n\t"prompts": [\n\t\t' + lines("\t\t", "\t") + "\n\t]\n}\n",
    ),
    "one line": (f"[{A}]", f"[{A}, {LINE}]"),
    "one line, no spaces": (f"[{A},{A}]", f"[{A},{A},{LINE}]"),
    "one line, spaces": (f"[ {A} ]", f"[ {A}, {LINE} ]"),
    "a line each": (f"[\n  {A},\n  {A}\n]\n", f"[\n  {A},\n  {A},\n  {LINE}\n]\n"),
    "comma first": (f"[ {A}\n, {A}\n]", f"[ {A}\n, {A}, {LINE}\n]"),
    "over lines": (
        '[\n    {\n        "messages": []\n    }\n]\n',
        '[\n    {\n        "messages": []\n    },\n    ' + lines("    ", "    ") + "\n]\n",
    ),
    "brackets on one line": (
        '{ "prompts": [ {\n  "messages": []\n} ] }',
        '{ "prompts": [ {\n  "messages": []\n}, ' + lines("") + " ] }",
    ),
    "CRLF": (
        '[\r\n  {\r\n    "messages": []\r\n  }\r\n]\r\n',
        '[\r\n  {\r\n    "messages": []\r\n  },\r\n  ' + lines("  ", newline="\r\n") + "\r\n]\r\n",
    ),
    "keys after": (
        f'{{\n  "prompts": [\n    {A}\n  ],\n  "defaults": {{}}\n}}',
        f'{{\n  "prompts": [\n    {A},\n    {LINE}\n  ],\n  "defaults": {{}}\n}}',
    ),
    "a blank line between": (f"[\n  {A},\n\n  {A}\n]", f"[\n  {A},\n\n  {A},\n\n  {LINE}\n]"),
}


@pytest.mark.parametrize(("before", "after"), EXAMPLES.values(), ids=EXAMPLES)
def test_what_is_added_looks_like_the_rest(before: str, after: str) -> None:
    assert add_entry(before, NEW).apply(before) == after


def test_a_replaced_entry_is_written_as_the_old_one_was() -> None:
    text = f'[\n  {A},\n  {{"name": "x", "messages": {A}}},\n  {{\n    "name": "y"\n  }}\n]'
    assert replace_entry(text, 1, NEW).apply(text) == text.replace(f'{{"name": "x", "messages": {A}}}', LINE)
    assert replace_entry(text, 2, NEW).apply(text) == text.replace('{\n    "name": "y"\n  }', lines("  "))


# --- any file ----------------------------------------------------------------------------------------

SPACE = st.text(" \t\r\n", max_size=4)
STRINGS = st.text(max_size=12)
SCALARS = st.none() | st.booleans() | st.integers() | STRINGS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(STRINGS, inner, max_size=3),
    max_leaves=6,
)
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user"]), "content": STRINGS}),
    min_size=1,
    max_size=2,
)
ENTRIES = st.lists(
    MESSAGES
    | st.fixed_dictionaries(
        {"messages": MESSAGES},
        optional={
            "priority": st.integers(),
            "x-own": VALUES,
            "tools": st.lists(st.dictionaries(STRINGS, VALUES)),
        },
    ),
    max_size=3,
)
FILES = ENTRIES | st.fixed_dictionaries(
    {"prompts": ENTRIES},
    optional={"defaults": st.fixed_dictionaries({"priority": st.integers()}), "$comment": VALUES},
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A valid file in any layout; keys come in any order."""

    def write(value: Any) -> str:
        space = draw(SPACE)
        if isinstance(value, dict):
            items = draw(st.permutations(list(value.items())))
            inside = ",".join(f"{draw(SPACE)}{write(key)}:{write(item)}{draw(SPACE)}" for key, item in items)
            return f"{space}{{{inside or space}}}{space}"
        if isinstance(value, list):
            return f"{space}[{','.join(map(write, value)) or space}]{space}"
        return f"{space}{json.dumps(value, ensure_ascii=draw(st.booleans()))}{space}"

    return write(draw(FILES))


def check(text: str, edit: Edit, expected: list[Any]) -> None:
    after = edit.apply(text)
    parsed = parse(after)
    assert parsed.problems == ()
    old = parse(text).value
    entries, _ = entries_of(parsed.value)
    assert entries == expected
    if isinstance(old, dict):
        assert {**parsed.value, "prompts": 0} == {**old, "prompts": 0}


@given(texts())
def test_adding_changes_nothing_else_in_any_file(text: str) -> None:
    assert validate(parse(text).value) == []
    edit = add_entry(text, NEW)
    assert edit.start == edit.end
    check(text, edit, [*entries_of(parse(text).value)[0], NEW])


@given(texts(), st.integers(0, 2))
def test_replacing_changes_nothing_else_in_any_file(text: str, index: int) -> None:
    entries = list(entries_of(parse(text).value)[0])
    if index < len(entries):
        edit = replace_entry(text, index, NEW)
        assert json.loads(text[edit.start : edit.end]) == entries[index]
        entries[index] = NEW
        check(text, edit, entries)
