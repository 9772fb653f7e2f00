"""What `warmd capture` prints."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from warmd.commands.capture import report_lines

Json = dict[str, Any]
NOW = datetime(2025, 6, 1, 12, 0)


def answer(**more: Any) -> Json:
    return {
        "messages": [{"role": "system", "content": "You are\x1b[31m a coder.\n" + "x" * 2000}],
        "tools": [{"function": {"name": "read"}}, {"name": "write"}, {"x": 1}],
        "chat_template_kwargs": {"enable_thinking": False},
        "notes": [],
        "tokens": 1200,
        "problem": None,
        "requests": [{"tokens": 1300, "matched": 1200}],
        **more,
    }


def printed(found: Json, saved: Json | None = None) -> list[str]:
    return list(report_lines("new", found, saved, NOW))


def test_what_was_captured() -> None:
    assert printed(answer()) == [
        f"messages[0] (system): 2,022 characters: You are␛[31m a coder.␊{'x' * 38}…",
        "tools: 3: read, write, ?",
        "chat_template_kwargs: enable_thinking = false",
        "1,200 tokens to be kept warm, of requests of 1,300",
        "nothing was saved: --save adds it to the prompts file",
    ]


def test_what_was_saved() -> None:
    saved: Json = {
        "path": "/p.json",
        "files": ["prompts/new.md", "tools/new.json"],
        "replaced": False,
        "left": [],
        "warnings": [],
    }
    assert printed(answer(), saved)[-1] == "new: added to /p.json, with prompts/new.md and tools/new.json"
    saved |= {"files": [], "replaced": True, "warnings": ["the defaults add x"]}
    assert printed(answer(), saved)[-2:] == ["warning: the defaults add x", "new: replaced in /p.json"]
    saved |= {"left": ["mine.md", "tools/new.json"]}
    expected = "note: no entry of p.json names mine.md and tools/new.json any more; nothing is removed"
    assert printed(answer(), saved)[-1] == expected


def test_what_a_user_should_know() -> None:
    requests = [{"tokens": 1300, "matched": 1200}, {"tokens": 1400, "matched": 900}]
    lines = printed(answer(tools=None, notes=["left out: b"], requests=requests))
    assert "warning: only 900 of these tokens begin every request" in lines
    assert "note: left out: b" in lines
    lines = printed(answer(tokens=None, problem="no template", requests=[{"tokens": 9, "matched": None}]))
    assert "cannot be kept warm: no template (requests: 9 tokens)" in lines


def test_text_that_will_be_another_tomorrow_is_pointed_out() -> None:
    text = f"Be brief.\nCurrent date: {NOW:%Y-%m-%d}\nBe kind."
    (line,) = [
        line
        for line in printed(answer(messages=[{"role": "system", "content": text}]))
        if line.startswith("warning")
    ]
    assert line.startswith("warning: messages[0] (system): ")
    assert f"{NOW:%Y-%m-%d}␊Be kind.…" in line


def test_a_stand_in() -> None:
    lines = printed(answer(messages=[{"role": "user", "content": ""}], chat_template_kwargs={}))
    assert lines[0] == "messages[0] (user): 0 characters"
