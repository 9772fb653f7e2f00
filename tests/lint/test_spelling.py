"""Roles and keys of messages that look misspelled: valid, as templates may know them, but told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.lint.corpus import NOW
from warmd.cli import main
from warmd.lint import lint_file
from warmd.lint.spelling import KEYS, ROLES, TEMPLATE_ROLES, misspellings
from warmd.prompts import FileError, load_document

KEY = "a key that templates may not know; the nearest known one is"
ROLE = "a role that templates may not know;"


def told(value: Any) -> list[tuple[Any, str]]:
    return [(item.path, item.message) for item in misspellings(value)]


def test_a_misspelled_role_is_told_with_the_nearest_one() -> None:
    value = [[{"role": "systm", "content": "x"}, {"role": "User", "content": "x"}]]
    assert told(value) == [
        ((0, 0, "role"), f"{ROLE} the nearest known one is 'system'"),
        ((0, 1, "role"), f"{ROLE} the nearest known one is 'user'"),
    ]


def test_a_role_that_is_like_none_is_told_with_all_that_are_known() -> None:
    value = {"prompts": [{"messages": [{"role": "narrator", "content": "x"}]}]}
    known = "known ones are system, developer, user, assistant, tool, function"
    assert told(value) == [(("prompts", 0, "messages", 0, "role"), f"{ROLE} {known}")]


@pytest.mark.parametrize(
    ("key", "near"), [("contnt", "content"), ("contentfile", "content_file"), ("tool_cals", "tool_calls")]
)
def test_a_misspelled_key_is_told_with_the_nearest_one(key: str, near: str) -> None:
    value = [[{"role": "system", "content": "x", key: "y"}]]
    assert told(value) == [((0, 0, key), f"{KEY} {near!r}")]


@pytest.mark.parametrize("role", ROLES + TEMPLATE_ROLES)
def test_known_roles_are_not_told(role: str) -> None:
    assert told([[{"role": role, "content": "x"}]]) == []


@pytest.mark.parametrize("key", [*KEYS, "x-contnt", "$comment", "weight", "cache_control", "timestamp"])
def test_keys_that_are_known_free_or_like_no_other_are_not_told(key: str) -> None:
    assert told([[{"role": "user", "content": "x"} | ({} if key == "role" else {key: "y"})]]) == []


def test_the_place_is_that_of_the_role_and_of_the_key(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_text('[[{"role": "systm",\n "contnt": "y", "content": "x"}]]')
    document = load_document(path)
    assert list(lint_file(document, NOW, 1 << 20)) == [
        FileError(1, 12, "$[0][0].role", f"{ROLE} the nearest known one is 'system'"),
        FileError(2, 2, "$[0][0].*", f"{KEY} 'content'"),
    ]


def test_check_warns_and_finds_the_file_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.json"
    path.write_text('[[{"role": "systm", "content": "x"}]]')
    assert main(["check", str(path)]) == 0
    warning = f"{ROLE} the nearest known one is 'system'"
    assert capsys.readouterr().out.splitlines()[-1] == f"{path}:1:12: warning: {warning} (at $[0][0].role)"
    assert main(["check", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["warnings"] == [{"line": 1, "column": 12, "path": "$[0][0].role", "message": warning}]
