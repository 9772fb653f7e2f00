"""`warmd check` says what a file would keep warm, or everything that is wrong with it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.prompts.files import SYSTEM, write
from warmd.cli import main
from warmd.errors import UsageError

GOOD = [
    [SYSTEM],
    {"name": "coder", "priority": 10, "messages": [SYSTEM, {"role": "user", "content": "Hi"}], "tools": [{}]},
]
BAD = '[5,\n {"messages": [], "name": "#"}]'


@pytest.fixture(autouse=True)
def no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have settings of their own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("WARMD_CONFIG", raising=False)


def check_json(capsys: pytest.CaptureFixture[str], path: Path) -> tuple[int, Any]:
    """Exit code and report."""
    code = main(["check", str(path), "--json"])
    output = capsys.readouterr()
    assert output.err == ""
    return code, json.loads(output.out)


def test_a_good_file_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, GOOD)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    report = {
        "ok": True,
        "path": str(path),
        "sha256": sha256,
        "digest": sha256,
        "entries": [
            {"name": "#0", "messages": 1, "tools": 0, "priority": 0, "ends_in_user_turn": False},
            {"name": "coder", "messages": 2, "tools": 1, "priority": 10, "ends_in_user_turn": True},
        ],
        "errors": [],
        "warnings": [],
    }
    assert (0, report) == check_json(capsys, path)


def test_a_bad_file_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "prompts.json"
    path.write_text(BAD)
    report = {
        "ok": False,
        "path": str(path),
        "sha256": hashlib.sha256(BAD.encode()).hexdigest(),
        "digest": None,
        "entries": [],
        "errors": [
            {
                "line": 1,
                "column": 2,
                "path": "$[0]",
                "message": "expected a list of messages or an object with 'messages', found a number",
            },
            {"line": 2, "column": 15, "path": "$[1].messages", "message": "expected at least one message"},
            {
                "line": 2,
                "column": 27,
                "path": "$[1].name",
                "message": "a name may not begin with '#': prompts without a name are called #0, #1, …",
            },
        ],
        "warnings": [],
    }
    assert (1, report) == check_json(capsys, path)


def test_a_missing_file_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = {
        "ok": False,
        "path": str(tmp_path / "nothing.json"),
        "sha256": None,
        "digest": None,
        "entries": [],
        "errors": [{"line": None, "column": None, "path": "$", "message": "no such file"}],
        "warnings": [],
    }
    assert (1, report) == check_json(capsys, tmp_path / "nothing.json")


def test_an_image_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, [[{"role": "user", "content": [{"type": "image_url"}]}]])
    code, report = check_json(capsys, path)
    message = "#0: has an image part, so it cannot be kept warm"
    warning = {"line": None, "column": None, "path": "$", "message": message}
    assert (0, True, [warning]) == (code, report["ok"], report["warnings"])


def test_a_good_file_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, GOOD)
    assert main(["check", str(path)]) == 0
    table = f"""\
{path}: valid, 2 entries

name   priority  messages  tools
#0            0         1      0
coder        10         2      1  ends where its last user turn begins
"""
    assert (table, "") == capsys.readouterr()


def test_a_bad_file_for_people_is_told_on_stderr_as_compilers_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "prompts.json"
    path.write_text('[5,\n {"messages": []}]')
    assert main(["check", str(path)]) == 1
    errors = f"""\
{path}:1:2: expected a list of messages or an object with 'messages', found a number (at $[0])
{path}:2:15: expected at least one message (at $[1].messages)
2 errors
"""
    assert ("", errors) == capsys.readouterr()


def test_an_error_without_a_position_names_the_file_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(tmp_path / "nothing.json")]) == 1
    assert ("", f"{tmp_path}/nothing.json: no such file\n1 error\n") == capsys.readouterr()


def test_an_empty_list_is_said_to_keep_nothing_warm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, [])
    assert main(["check", str(path)]) == 0
    assert (f"{path}: valid; keeps nothing warm\n", "") == capsys.readouterr()


def test_without_a_name_the_file_of_the_settings_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WARMD_PROMPTS_PATH", str(write(tmp_path, GOOD)))
    assert main(["check", "--json"]) == 0
    assert str(tmp_path / "prompts.json") == json.loads(capsys.readouterr().out)["path"]


def test_the_size_cap_of_the_settings_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WARMD_PROMPTS_MAX_BYTES", "3")
    code, report = check_json(capsys, write(tmp_path, GOOD))
    message = "larger than the 3 bytes that [prompts] max_bytes allows"
    assert (1, [message]) == (code, [error["message"] for error in report["errors"]])


def test_wrong_template_arguments_are_a_usage_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["check", str(write(tmp_path, GOOD)), "--chat-template-args", "[]"])
    expected = "warmd: --chat-template-args: expected a JSON object, found a list\n"
    assert (UsageError.exit_code, expected) == (code, capsys.readouterr().err)
