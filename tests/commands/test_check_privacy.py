"""`warmd check` never shows what stands in a file, and waits for nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.commands.terminal import outcome, warmd
from warmd.cli import main

CANARY = "XCANARYX"
SYSTEM = {"role": "system", "content": "Answer briefly."}

_LEAKY = {
    "content": {"role": CANARY, "content": 5},
    "role": {"role": [CANARY], "content": CANARY},
    "key": {"role": "system", "content": [{CANARY: CANARY}]},
    "part": {"role": "system", "content": [CANARY, {"type": "text", "text": [CANARY]}]},
    "file": {"role": "system", "content_file": f"You are {CANARY}, a helpful assistant."},
    "both": {"role": "system", "content": CANARY, "content_file": CANARY + " " + CANARY},
    "calls": {"role": "assistant", "content": None, "tool_calls": [CANARY]},
}
_BROKEN = {
    **{f"message {name}": json.dumps([[message]]) for name, message in _LEAKY.items()},
    "unknown key": json.dumps({"prompts": [{"messages": [SYSTEM], CANARY: CANARY}], CANARY: 1}),
    "defaults": json.dumps({"prompts": [], "defaults": {CANARY: CANARY}}),
    "name": json.dumps([{"name": "#" + CANARY, "messages": [SYSTEM]}]),
    "same names": json.dumps([{"name": CANARY, "messages": [SYSTEM]}] * 2),
    "kwargs": json.dumps([{"messages": [SYSTEM], "chat_template_kwargs": CANARY}]),
    "tools": json.dumps([{"messages": [SYSTEM], "tools": [CANARY]}]),
    "tools file": json.dumps([{"messages": [SYSTEM], "tools_file": f"{CANARY} {CANARY}"}]),
    "top": json.dumps(CANARY),
    "twice": f'[[{{"role": "system", "{CANARY}": 1, "{CANARY}": 2, "content": "x"}}]]',
    "surrogate": f'[[{{"role": "system", "content": "{CANARY}\\ud800"}}]]',
    "unquoted": f"[{CANARY}]",
    "single quotes": f"['{CANARY}']",
    "unterminated": f'["{CANARY}',
    "escape": f'["\\{CANARY}"]',
    "raw newline": f'["{CANARY}\n{CANARY}"]',
    "comment": f"[] // {CANARY}",
    "after the end": f'[] "{CANARY}"',
}


@pytest.mark.parametrize("mode", [(), ("--json",)], ids=["human", "json"])
@pytest.mark.parametrize("text", _BROKEN.values(), ids=_BROKEN)
def test_no_output_quotes_what_stands_in_a_broken_file(
    text: str,
    mode: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WARMD_CONFIG", raising=False)
    path = tmp_path / "p.json"
    path.write_text(text, encoding="utf-8")
    assert main(["check", str(path), *mode]) == 1
    assert CANARY not in "".join(capsys.readouterr())


@pytest.mark.parametrize("mode", [(), ("--json",)], ids=["human", "json"])
def test_no_output_quotes_the_text_of_a_good_file(
    mode: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.md").write_text(CANARY)
    entry = {
        "name": "coder",
        "x-note": CANARY,
        "messages": [
            {"role": "system", "content_file": "s.md"},
            {"role": CANARY, "content": [{"type": "text", "text": CANARY}, {"type": "image_url"}]},
        ],
        "tools": [{CANARY: CANARY}],
        "chat_template_kwargs": {CANARY: CANARY},
    }
    (tmp_path / "p.json").write_text(json.dumps([entry]))
    assert main(["check", str(tmp_path / "p.json"), *mode]) == 0
    assert CANARY not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param(f'{{"{CANARY}"', "no valid JSON", id="half"),
        pytest.param("NaN", "a number", id="NaN"),
        pytest.param("5", "a number", id="number"),
        pytest.param(f'"{CANARY}"', "a string", id="string"),
        pytest.param("[" * 100_000, "no valid JSON", id="deep"),
    ],
)
def test_template_arguments_that_are_no_object_are_a_usage_error(
    text: str, found: str, tmp_path: Path
) -> None:
    done = warmd("check", "p.json", "--chat-template-args", text, cwd=tmp_path)
    assert outcome(done) == (2, "", f"warmd: --chat-template-args: expected a JSON object, found {found}\n")


def test_a_fifo_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    expected = "pipe: expected a regular file, found a FIFO\n1 error\n"
    assert outcome(warmd("check", "pipe", cwd=tmp_path)) == (1, "", expected)
