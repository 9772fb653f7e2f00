"""`warmd check --model`: tokens of each entry with a real tokenizer, where there are no weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands.terminal import outcome, warmd
from tests.toys import CHATML, make_model, make_tokenizer
from warmd.cli import main

SYSTEM = {"role": "system", "content": "You are a careful reviewer of code. Answer briefly."}
OTHER = {"role": "system", "content": "You are a careful reviewer of code. Don't guess."}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder whose weights are gone: whoever wants to load them fails."""
    folder = make_model(tmp_path_factory.mktemp("model") / "toy")
    (folder / "model.safetensors").unlink()
    return folder


@pytest.fixture(autouse=True)
def _no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("WARMD_CONFIG", raising=False)


def check(tmp_path: Path, entries: list[Any], *args: str) -> tuple[int, str]:
    """Exit code and path of a check of some entries."""
    path = tmp_path / "p.json"
    path.write_text(json.dumps(entries))
    return main(["check", str(path), *args]), str(path)


def check_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], entries: list[Any], *args: str
) -> tuple[int, Any]:
    """Exit code and report."""
    code, _ = check(tmp_path, entries, "--json", *args)
    return code, json.loads(capsys.readouterr().out)


def request(message: dict[str, str], user: str) -> list[int]:
    """The tokens of a request as mlx-lm's server makes them."""
    messages = [message, {"role": "user", "content": user}]
    tokens = make_tokenizer().apply_chat_template(messages, add_generation_prompt=True, tokenize=True)
    return list(getattr(tokens, "input_ids", tokens))


def common(first: list[int], second: list[int]) -> int:
    """Length of the common beginning."""
    return next(index for index, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)


NO_WEIGHTS = "weights not found: bytes unknown"


def test_each_entry_is_counted_in_tokens_without_weights(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = check_json(tmp_path, capsys, [[SYSTEM], [OTHER]], "--model", str(model))
    shared = common(request(SYSTEM, "x"), request(OTHER, "x"))
    tokens = [entry["tokens"] for entry in report["entries"]]
    assert code == 0
    assert tokens[0] <= common(request(SYSTEM, "one"), request(SYSTEM, "2 more"))
    assert shared < min(tokens)
    assert report["entries"] == [
        {
            "name": f"#{index}",
            "priority": 0,
            "messages": 1,
            "tools": 0,
            "ends_in_user_turn": False,
            "tokens": count,
            "own_tokens": count - (index and shared),
            "shared_tokens": index and shared,
            "kv_bytes": None,
            "fits": None,
            "reason": None,
            "problem": None,
            "daily": False,
            "ignores_tools": False,
        }
        for index, count in enumerate(tokens)
    ]
    assert [report["memory"][key] for key in ("model_bytes", "kv_bytes", "fits")] == [None] * 3
    assert report["memory"]["problem"] == NO_WEIGHTS


def test_people_see_tokens_in_the_table(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, path = check(tmp_path, [[SYSTEM]], "--model", str(model))
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[:2] == [f"{path}: valid, 1 entry", ""]
    assert lines[2] == "name   priority  messages  tools  tokens  own  shared"
    name, *numbers = lines[3].split()
    assert (name, numbers[:3], numbers[5]) == ("#0", ["0", "1", "0"], "0")
    assert lines[4].split() == ["total", *numbers[3:]]
    assert lines[5:] == ["", NO_WEIGHTS]


def test_an_entry_that_cannot_be_kept_warm_fails_the_check_and_no_other_entry(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    code, report = check_json(tmp_path, capsys, [[image], [SYSTEM]], "--model", str(model))
    bad, good = report["entries"]
    assert (code, report["ok"]) == (1, False)
    assert (bad["tokens"], bad["own_tokens"], bad["shared_tokens"]) == (None, None, None)
    assert bad["problem"]
    assert good["tokens"] > 0
    assert good["problem"] is None


def test_the_reason_stands_behind_the_row(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    code, _ = check(tmp_path, [[image]], "--model", str(model))
    row = capsys.readouterr().out.splitlines()[3]
    assert code == 1
    assert row.split()[4:7] == ["-", "-", "-"]
    assert "cannot be kept warm: " in row


def test_no_problem_quotes_the_prompt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refusing = "{{- raise_exception('no ' + messages[0].content) }}"
    folder = make_model(tmp_path / "toy", template=refusing)
    message = {"role": "system", "content": "XCANARYX is what this prompt says"}
    code, report = check_json(tmp_path, capsys, [[message]], "--model", str(folder))
    assert code == 1
    assert report["entries"][0]["problem"]
    assert "XCANARYX" not in json.dumps(report)


def test_the_servers_template_arguments_change_the_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    template = "{%- if think %}{{- 'Think well before you answer. ' }}{%- endif %}" + CHATML
    folder = str(make_model(tmp_path / "toy", template=template))
    args = ("--model", folder, "--chat-template-args", '{"think": true}')
    _, plain = check_json(tmp_path, capsys, [[SYSTEM]], "--model", folder)
    _, thinking = check_json(tmp_path, capsys, [[SYSTEM]], *args)
    assert thinking["entries"][0]["tokens"] > plain["entries"][0]["tokens"]


def test_a_file_that_is_invalid_is_told_before_any_model_is_looked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, report = check_json(tmp_path, capsys, [5], "--model", str(tmp_path / "no-model"))
    assert (code, len(report["errors"])) == (1, 1)


def test_a_model_that_is_not_there_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps([[SYSTEM]]))
    missing = str(tmp_path / "no-model")
    done = warmd("check", "p.json", "--model", missing, cwd=tmp_path)
    code, out, err = outcome(done)
    assert (code, out) == (3, "")
    assert err == f"warmd: cannot load the model {missing!r}: no such folder\n"
    assert err.count("\n") == 1


def test_home_is_expanded_in_a_models_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_model(tmp_path / "toy")
    code, report = check_json(tmp_path, capsys, [[SYSTEM]], "--model=~/toy")
    assert (code, report["ok"]) == (0, True)
