"""A file becomes a document, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.prompts.files import SYSTEM, errors_of_text, load, refusal, write
from warmd.errors import WarmdError
from warmd.prompts import Document, Entry, FileError, InvalidPromptsError, load_document
from warmd.prompts.vocabulary import DEFAULTS_KEYS, ENTRY_KEYS, FILE_KEYS, MESSAGE_KEYS

USER = {"role": "user", "content": "Hello"}


def sha256(data: bytes) -> str:
    """What `shasum -a 256` prints."""
    return hashlib.sha256(data).hexdigest()


def digest(value: Any) -> str:
    """The digest of messages, tools and kwargs."""
    return sha256(json.dumps(value, separators=(",", ":")).encode())


def test_both_kinds_of_entry_become_entries_with_the_defaults_under_their_own(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "b", "a": 1}}
    path = write(
        tmp_path,
        {
            "defaults": {"priority": 3, "chat_template_kwargs": {"enable_thinking": False, "x": 1}},
            "prompts": [
                [SYSTEM, USER],
                {
                    "name": "coder",
                    "$comment": "not part of the prompt",
                    "priority": 10,
                    "messages": [SYSTEM],
                    "tools": [tool],
                    "chat_template_kwargs": {"enable_thinking": True},
                },
            ],
        },
    )
    plain, merged = {"enable_thinking": False, "x": 1}, {"enable_thinking": True, "x": 1}
    data = path.read_bytes()
    assert Document(
        path=path,
        sha256=sha256(data),
        digest=sha256(data),
        entries=(
            Entry("#0", 0, (SYSTEM, USER), None, plain, 3, digest([[SYSTEM, USER], None, plain])),
            Entry("coder", 1, (SYSTEM,), (tool,), merged, 10, digest([[SYSTEM], [tool], merged])),
        ),
        files=(path,),
    ) == load_document(path)


@pytest.mark.parametrize("value", [[], {"prompts": []}])
def test_an_explicit_empty_list_keeps_nothing(tmp_path: Path, value: Any) -> None:
    assert load(tmp_path, value).entries == ()


@pytest.mark.parametrize("kind", ["image_url", "input_image", "image"])
def test_an_image_marks_its_entry_and_is_no_error(tmp_path: Path, kind: str) -> None:
    value = [[{"role": "user", "content": [{"type": kind}]}], [SYSTEM]]
    assert [entry.has_images for entry in load(tmp_path, value).entries] == [True, False]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\ufeff" + text,
        lambda text: text.replace("You", "\\u0059ou"),
        lambda text: text.replace('"messages"', '"$comment": "new", "x-y": 2, "messages"'),
    ],
)
def test_a_cosmetic_edit_changes_the_sha256_and_no_entry(
    tmp_path: Path, change: Callable[[str], str]
) -> None:
    path = write(tmp_path, [{"messages": [SYSTEM]}])
    path.write_text(json.dumps([{"messages": [SYSTEM]}], indent=1))
    before = load_document(path)
    path.write_bytes(change(path.read_bytes().decode()).encode())
    after = load_document(path)
    assert before.entries == after.entries
    assert before.sha256 != after.sha256
    assert before.digest != after.digest


def test_the_order_of_a_tools_keys_and_of_the_tools_counts(tmp_path: Path) -> None:
    orders = (
        [{"a": 1, "b": 2}, {"c": 3}],
        [{"b": 2, "a": 1}, {"c": 3}],
        [{"c": 3}, {"a": 1, "b": 2}],
    )
    value = [{"messages": [SYSTEM], "tools": order} for order in orders]
    entries = load(tmp_path, value).entries
    assert len({entry.digest for entry in entries}) == 3
    assert list((entries[0].tools or ())[0]) == ["a", "b"]


def test_kwargs_and_tools_belong_to_the_digest_but_name_and_priority_do_not(tmp_path: Path) -> None:
    variants: tuple[dict[str, Any], ...] = (
        {},
        {"name": "n", "priority": 1},
        {"tools": []},
        {"chat_template_kwargs": {"a": 1}},
    )
    digests = [
        entry.digest for entry in load(tmp_path, [{"messages": [SYSTEM], **v} for v in variants]).entries
    ]
    assert [digests.index(item) for item in digests] == [0, 0, 2, 3]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "expected a regular file, found a directory"),
        (lambda path: os.mkfifo(path), "expected a regular file, found a FIFO"),
        (lambda path: path.symlink_to("/dev/zero"), "expected a regular file, found a device"),
        (lambda path: path.symlink_to(path), "too many levels of symbolic links"),
        (lambda path: path.symlink_to("nowhere"), "no such file"),
    ],
)
def test_what_cannot_be_read_is_an_error_without_a_position(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "prompts.json"
    make(path)
    error = refusal(path)
    assert ((FileError(None, None, "$", message),), None, (path,)) == (
        error.errors,
        error.sha256,
        error.files,
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_denied_file_is_told_from_a_missing_one(tmp_path: Path) -> None:
    path = write(tmp_path, [])
    path.chmod(0)
    assert refusal(path).errors[0].message.startswith("permission denied")


def test_a_file_over_the_cap_is_refused_and_one_at_the_cap_is_not(tmp_path: Path) -> None:
    path = tmp_path / "prompts.json"
    path.write_text("[]      ")
    assert load_document(path, max_bytes=8).entries == ()
    message = "larger than the 7 bytes that [prompts] max_bytes allows"
    assert (FileError(None, None, "$", message),) == refusal(path, max_bytes=7).errors


@pytest.mark.parametrize(
    ("data", "offset"),
    [(b"[\xff]", 1), (b"\xef\xbb\xbf[\xc3]", 4), (b"\xff\xfe[\0]\0", 0), (b'["\xed\xa0\x80"]', 2)],
)
def test_what_is_not_utf_8_has_no_position_but_a_byte(tmp_path: Path, data: bytes, offset: int) -> None:
    path = tmp_path / "prompts.json"
    path.write_bytes(data)
    error = refusal(path)
    message = f"expected UTF-8, found another encoding at byte {offset}"
    assert ((FileError(None, None, "$", message),), sha256(data)) == (error.errors, error.sha256)


def test_a_byte_order_mark_does_not_move_the_columns(tmp_path: Path) -> None:
    (error,) = errors_of_text(tmp_path, "\ufeff[1]")
    assert (error.line, error.column) == (1, 2)


def test_a_half_written_file_is_refused_at_every_length(tmp_path: Path) -> None:
    path = write(tmp_path, [[SYSTEM]])
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        assert refusal(path).errors[0].line == 1


def test_the_error_is_one_of_ours_and_says_the_first_thing_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "prompts.json"
    path.write_text("[1,\n 2]")
    error = refusal(path)
    assert isinstance(error, WarmdError)
    expected = "expected a list of messages or an object with 'messages', found a number"
    assert f"{path}:1:2: {expected} (and 1 more)" == str(error)


def test_no_foreign_error_that_holds_the_text_stays_attached(tmp_path: Path) -> None:
    path = tmp_path / "prompts.json"
    for data in (b'["secret', b'["secret\xff"]', b'["\\q"]'):
        path.write_bytes(data)
        error = refusal(path)
        assert (error.__cause__, error.__context__) == (None, None)
        assert "secret" not in "".join(traceback.format_exception(error))


def test_a_home_folder_and_a_relative_path_become_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, [])
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    expected = (tmp_path / "prompts.json",)
    assert (expected, expected) == (
        load_document(Path("~/prompts.json")).files,
        load_document(Path("prompts.json")).files,
    )


def is_settled(path: Path) -> bool:
    """True when a file is accepted, or refused with reasons; any other exception escapes."""
    try:
        load_document(path)
    except InvalidPromptsError as error:
        return bool(error.errors)
    return True


@given(st.binary(max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@pytest.mark.promise(3)
def test_no_bytes_raise_anything_else(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "prompts.json"
    path.write_bytes(data)
    assert is_settled(path)


JSON = st.recursive(
    st.none() | st.integers(-1, 1) | st.sampled_from(["", "user", "text", "a/b", "~nobody/x", "\ud800"]),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [*FILE_KEYS, *ENTRY_KEYS, *DEFAULTS_KEYS, *MESSAGE_KEYS, "type", "text", "x-1", "zzz"]
            ),
            children,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_value_raises_anything_else(tmp_path: Path, value: Any) -> None:
    assert is_settled(write(tmp_path, value))
