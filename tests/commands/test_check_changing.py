"""`warmd check` warns of what will be another in other requests."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.toys import CHATML, make_tokenizer_files
from warmd.cli import main

DATED = "{{- 'Today Date: ' + strftime_now('%d %b %Y') + '\\n' }}" + CHATML


def write(folder: Path, content: str) -> Path:
    path = folder / "prompts.json"
    path.write_text(json.dumps([[{"role": "system", "content": content}]]))
    return path


def make_model_folder(folder: Path, template: str) -> None:
    make_tokenizer_files(folder, template=template)
    (folder / "config.json").write_text('{"model_type": "llama"}')


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["check", *arguments])
    return code, *capsys.readouterr()


def test_a_warning_has_its_place_and_changes_no_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, f"Current date: {datetime.now():%Y-%m-%d}. Be kind.")
    column = path.read_text().index("20") + 1
    code, out, error = run(capsys, str(path))
    assert (code, error) == (0, "")
    assert out.splitlines()[-1] == (
        f"{path}:1:{column}: warning: what looks like the date: if it changes from request to request, "
        "nothing behind it is served warm (at $[0][0].content)"
    )
    code, out, _ = run(capsys, str(path), "--json")
    found: dict[str, Any] = json.loads(out)
    assert (code, found["ok"]) == (0, True)
    assert [(item["line"], item["column"], item["path"]) for item in found["warnings"]] == [
        (1, column, "$[0][0].content")
    ]


def test_the_samples_give_no_warning(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[2] / "config" / "prompts.json"
    _, out, _ = run(capsys, str(path), "--json")
    assert json.loads(out)["warnings"] == []


@pytest.mark.parametrize(("template", "is_daily"), [(DATED, True), (CHATML, False)])
def test_with_a_model_it_says_which_prefixes_hold_the_date(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], template: str, is_daily: bool
) -> None:
    make_model_folder(tmp_path, template)
    path = write(tmp_path, "You are a careful reviewer of code.")
    code, out, _ = run(capsys, str(path), "--model", str(tmp_path))
    assert (code, "holds the date" in out) == (0, is_daily)
    _, out, _ = run(capsys, str(path), "--model", str(tmp_path), "--json")
    assert json.loads(out)["entries"][0]["daily"] is is_daily


@pytest.mark.parametrize("is_ignored", [True, False])
def test_with_a_model_it_says_whose_tools_the_template_leaves_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_ignored: bool
) -> None:
    template = CHATML.replace("{%- if tools %}", "{%- if false %}") if is_ignored else CHATML
    make_model_folder(tmp_path, template)
    path = tmp_path / "tools.json"
    tool = {"type": "function", "function": {"name": "read", "parameters": {}}}
    messages = [{"role": "system", "content": "You are a careful reviewer of code."}]
    path.write_text(json.dumps([{"name": "a", "messages": messages, "tools": [tool]}, messages]))
    code, out, _ = run(capsys, str(path), "--model", str(tmp_path))
    assert (code, out.count("the chat template leaves its tools out")) == (0, int(is_ignored))
    _, out, _ = run(capsys, str(path), "--model", str(tmp_path), "--json")
    assert [entry["ignores_tools"] for entry in json.loads(out)["entries"]] == [is_ignored, False]


def test_with_a_model_what_prints_the_time_cannot_be_kept_warm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_model_folder(tmp_path, DATED.replace("%d %b %Y", "%H:%M"))
    path = write(tmp_path, "You are a careful reviewer of code.")
    code, out, _ = run(capsys, str(path), "--model", str(tmp_path))
    assert code == 1
    assert "cannot be kept warm: the chat template prints the time '%H:%M'" in out
