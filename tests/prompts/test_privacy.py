"""No error shows what somebody wrote into a prompt, however the file is broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.prompts.files import SYSTEM, refusal

CANARY = "CANARY in the coal mine"
SAID = {"role": "system", "content": CANARY}

BROKEN_VALUES: list[Any] = [
    CANARY,
    {CANARY: CANARY},
    {"prompts": CANARY},
    {"prompts": {CANARY: CANARY}},
    {"prompts": [], CANARY: CANARY},
    {"defaults": CANARY, "prompts": []},
    {"defaults": {CANARY: CANARY}, "prompts": []},
    {"defaults": {"priority": CANARY, "chat_template_kwargs": CANARY}, "prompts": []},
    [CANARY],
    [[CANARY]],
    [SAID],
    [{**SAID, CANARY: CANARY}],
    [{"messages": CANARY}],
    [{"messages": [SAID], CANARY: CANARY}],
    [{"messages": [SAID], "priority": CANARY}],
    [{"messages": [SAID], "name": CANARY + "\n"}],
    [{"messages": [SAID], "name": "#" + CANARY}],
    [{"messages": [SAID], "name": CANARY * 20}],
    [{"messages": [SAID], "name": CANARY}, {"messages": [SAID], "name": CANARY}],
    [{"messages": [SAID], "chat_template_kwargs": CANARY}],
    [{"messages": [SAID], "tools": CANARY}],
    [{"messages": [SAID], "tools": [CANARY]}],
    [{"messages": [SAID], "tools_file": CANARY}],
    [{"messages": [SAID], "tools_file": [CANARY]}],
    [[{"role": "system", "content_file": CANARY}]],
    [[{"role": "system", "content_file": {CANARY: CANARY}}]],
    [[{"role": [CANARY], "content": CANARY}]],
    [[{"role": {CANARY: CANARY}, "content": {CANARY: CANARY}}]],
    [[{CANARY: CANARY}]],
    [[{"role": "user", "content": [CANARY]}]],
    [[{"role": "user", "content": [{"type": {CANARY: 1}, CANARY: CANARY}]}]],
    [[{"role": "user", "content": [{"type": "text", "text": [CANARY], CANARY: CANARY}]}]],
    [[{"role": "assistant", "content": CANARY, "tool_calls": CANARY}]],
    [[{"role": "assistant", "content": CANARY, "tool_calls": [CANARY]}]],
    [[{"role": "assistant", "content": "\ud800" + CANARY}]],
    [[{"role": "assistant", "content": CANARY, "\ud800" + CANARY: CANARY}]],
    [[{"role": "user", "content": CANARY, CANARY: float("nan")}]],
    [{"messages": [SAID], "chat_template_kwargs": {CANARY: {CANARY: float("inf")}}}],
]

GOOD = json.dumps([[SAID, {"role": "user", "content": CANARY, CANARY: CANARY}]])
BROKEN_TEXTS = [
    CANARY,
    f"[{CANARY}]",
    f"['{CANARY}']",
    f'["{CANARY}',
    f'["{CANARY}\n"]',
    f'["\\q{CANARY}"]',
    f'["\\u{CANARY}"]',
    f'{{"{CANARY}" "{CANARY}"}}',
    f'{{"{CANARY}": 1, "{CANARY}": 2}}',
    f'[["{CANARY}" "{CANARY}"]]',
    f"[] {CANARY}",
    f"// {CANARY}\n[]",
    f'{{"{CANARY}": {CANARY}}}',
    *(GOOD[:length] for length in range(1, len(GOOD), 3)),
    *(GOOD[:length] + "\0" + GOOD[length:] for length in range(0, len(GOOD), 3)),
]


def everything_shown(path: Path) -> str:
    """All that an error says about a file."""
    error = refusal(path)
    return repr((str(error), error.errors, error.args))


@pytest.mark.parametrize("value", BROKEN_VALUES)
def test_a_broken_value_is_not_shown(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "prompts.json"
    path.write_text(json.dumps(value))
    assert "CANARY" not in everything_shown(path)


@pytest.mark.parametrize("text", BROKEN_TEXTS)
def test_broken_syntax_is_not_shown(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prompts.json"
    path.write_text(text)
    assert "CANARY" not in everything_shown(path)


@pytest.mark.parametrize("text", [*BROKEN_TEXTS, json.dumps({CANARY: CANARY}), json.dumps([CANARY])])
def test_a_broken_tools_file_is_not_shown(tmp_path: Path, text: str) -> None:
    (tmp_path / "tools.json").write_text(text)
    path = tmp_path / "prompts.json"
    path.write_text(json.dumps([{"messages": [SYSTEM], "tools_file": "tools.json"}]))
    assert "CANARY" not in everything_shown(path)


def test_bytes_that_are_no_text_are_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "prompts.json"
    path.write_bytes(CANARY.encode() + b"\xff")
    assert "CANARY" not in everything_shown(path)
