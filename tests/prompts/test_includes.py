"""Included files: read once, kept exactly, and every trouble told at the place that names them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.prompts.files import SYSTEM, errors_of, load, refusal, write
from warmd.prompts import FileError, load_document

TOOL = {"type": "function", "function": {"name": "b", "a": 1}}


def including(name: Any) -> list[Any]:
    """A file whose first message includes another file."""
    return [[{"role": "system", "content_file": name}]]


def test_included_and_inline_content_give_the_same_entry(tmp_path: Path) -> None:
    (tmp_path / "coder.md").write_text("You review code.")
    (tmp_path / "tools.json").write_text(json.dumps([TOOL], indent=4))
    included = {
        "messages": [{"role": "system", "content_file": "coder.md", "k": 1}],
        "tools_file": "tools.json",
    }
    inline = {"messages": [{"role": "system", "content": "You review code.", "k": 1}], "tools": [TOOL]}
    first, second = load(tmp_path, [included, inline]).entries
    assert second.messages == first.messages
    assert list(second.messages[0]) == list(first.messages[0])
    assert second.tools == first.tools
    assert second.digest == first.digest


@pytest.mark.parametrize(
    ("data", "content"),
    [
        (b"", ""),
        (b"a\r\nb\n\n", "a\r\nb\n\n"),
        (b"\xef\xbb\xbf\xef\xbb\xbfx", "\ufeffx"),
        (b"\x00\xe2\x82\xac", "\0€"),
    ],
)
def test_content_is_kept_exactly_but_for_a_byte_order_mark(tmp_path: Path, data: bytes, content: str) -> None:
    (tmp_path / "a.md").write_bytes(data)
    assert content == load(tmp_path, including("a.md")).entries[0].messages[0]["content"]


def test_names_are_relative_to_the_file_as_it_was_named_and_home_is_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").mkdir()
    write(tmp_path / "real", [*including("a.md"), *including("~/b.md")])
    (tmp_path / "link" / "prompts.json").symlink_to("../real/prompts.json")
    (tmp_path / "link" / "a.md").write_text("beside the link")
    (tmp_path / "b.md").write_text("at home")
    monkeypatch.setenv("HOME", str(tmp_path))
    document = load_document(tmp_path / "link" / "prompts.json")
    assert [entry.messages[0]["content"] for entry in document.entries] == ["beside the link", "at home"]
    assert (
        tmp_path / "link" / "prompts.json",
        tmp_path / "link" / "a.md",
        tmp_path / "b.md",
    ) == document.files


def test_a_file_that_is_named_often_is_read_once_and_held_once(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("x" * 1000)
    document = load(tmp_path, including("a.md") * 3)
    assert len({id(entry.messages[0]["content"]) for entry in document.entries}) == 1
    assert (tmp_path / "prompts.json", tmp_path / "a.md") == document.files


def test_an_edited_include_changes_the_digest_and_its_entry_but_not_the_sha256(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("one")
    before = load(tmp_path, [*including("a.md"), [SYSTEM]])
    (tmp_path / "a.md").write_text("two")
    after = load_document(before.path)
    assert before.sha256 == after.sha256
    assert before.digest != after.digest
    assert [old.digest == new.digest for old, new in zip(before.entries, after.entries, strict=True)] == [
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "expected a regular file, found a directory"),
        (lambda path: os.mkfifo(path), "expected a regular file, found a FIFO"),
        (lambda path: path.symlink_to("/dev/null"), "expected a regular file, found a device"),
        (lambda path: path.write_bytes(b"ab\xff"), "expected UTF-8, found another encoding at byte 2"),
        (
            lambda path: path.write_bytes(b"x" * 101),
            "larger than the 100 bytes that [prompts] max_bytes allows",
        ),
    ],
)
def test_an_unusable_include_is_told_where_it_is_named_and_is_watched(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    make(tmp_path / "a.md")
    error = refusal(write(tmp_path, including("a.md")), max_bytes=100)
    expected = FileError(1, 38, "$[0][0].content_file", f"a.md: {message}")
    assert ((expected,), (tmp_path / "prompts.json", tmp_path / "a.md")) == (error.errors, error.files)


def test_all_that_is_wrong_with_a_tools_file_is_told_with_its_own_positions(tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text('[{"a": 1, "a": 2},\n 5,\n {"b": NaN}]')
    value = [{"messages": [SYSTEM], "tools_file": "tools.json"}]
    place = (1, 82, "$[0].tools_file")
    assert (
        FileError(*place, "tools.json:1:11: this key occurs twice in one object (at $[0].*)"),
        FileError(*place, "tools.json:2:2: expected an object, found a number (at $[1])"),
        FileError(*place, "tools.json:3:8: NaN is not allowed in JSON (at $[2].*)"),
    ) == errors_of(tmp_path, value)


def test_a_wrong_tools_file_is_told_in_full_once_and_in_short_elsewhere(
    tmp_path: Path,
) -> None:
    (tmp_path / "t.json").write_text("[1, 2]")
    entry = {"messages": [SYSTEM], "tools_file": "t.json"}
    found = [(item.path, item.message) for item in errors_of(tmp_path, [entry, entry])]
    first, second = (
        f"t.json:1:{2 + 3 * at}: expected an object, found a number (at $[{at}])" for at in (0, 1)
    )
    assert [("$[0].tools_file", first), ("$[0].tools_file", second), ("$[1].tools_file", first)] == found


def test_a_tools_file_must_hold_a_list(tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text("{}")
    errors = errors_of(tmp_path, [{"messages": [SYSTEM], "tools_file": "tools.json"}])
    assert [e.message for e in errors] == ["tools.json:1:1: expected a list of tools, found an object (at $)"]


def test_includes_are_looked_at_even_if_the_file_is_wrong_elsewhere(tmp_path: Path) -> None:
    error = refusal(write(tmp_path, [5, *including("a.md"), {"tools_file": "b.json"}]))
    assert (tmp_path / "prompts.json", tmp_path / "a.md", tmp_path / "b.json") == error.files
    assert [e.path for e in error.errors] == ["$[0]", "$[1][0].content_file", "$[2]", "$[2].tools_file"]


@pytest.mark.parametrize("name", ["x" * 5000, "a/" * 3000, "~nobody-of-this-name/x", "\ud800", "/dev/null/x"])
def test_an_impossible_name_is_an_error_like_any_other(tmp_path: Path, name: str) -> None:
    assert errors_of(tmp_path, including(name))[-1].path == "$[0][0].content_file"


@pytest.mark.parametrize(
    "text", ["You are a secret agent.", "Secret", "你是秘密特工。", "sk-" + "a" * 300 + ".b"]
)
def test_a_text_in_the_place_of_a_name_is_not_repeated(tmp_path: Path, text: str) -> None:
    (error,) = errors_of(tmp_path, including(text))
    reason = "file name too long" if len(text) > 255 else "no such file"
    assert FileError(1, 38, "$[0][0].content_file", f"the file: {reason}") == error


def test_a_name_that_no_log_could_encode_is_neither_shown_nor_watched(tmp_path: Path) -> None:
    error = refusal(write(tmp_path, including("\ud800.md")))
    assert error.files == (tmp_path / "prompts.json",)
    assert [item.message for item in error.errors] == [
        "expected the path of a file",
        "half of a surrogate pair (a lone \\ud800-\\udfff), which is no text",
    ]


def test_a_name_that_would_break_the_line_is_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "a\nb.md").write_bytes(b"\xff")
    (error,) = errors_of(tmp_path, including("a\nb.md"))
    assert error.message == "the file: expected UTF-8, found another encoding at byte 0"


def test_a_name_with_spaces_is_repeated_when_there_is_such_a_file(tmp_path: Path) -> None:
    (tmp_path / "my prompt.md").write_bytes(b"\xff")
    (error,) = errors_of(tmp_path, including("my prompt.md"))
    assert error.message == "my prompt.md: expected UTF-8, found another encoding at byte 0"
