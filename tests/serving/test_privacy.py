"""No prompt text in any log line, at any level, whatever happens."""

from __future__ import annotations

from pathlib import Path

from tests.serving.process import serving, write

CANARY = "XYZZYPLUGH"


def test_nothing_that_anybody_wrote_is_logged(models: dict[str, Path], tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.json"
    system = {"role": "system", "content": f"{CANARY} " * 30}
    call = {"function": {"name": "f", "arguments": f'{{"{CANARY}"'}, "type": "function", "id": "1"}
    tools = [{"type": "function", "function": {"name": f"{CANARY}", "parameters": {}}}]
    write(
        prompts,
        [
            {"name": "good", "messages": [system], "tools": tools},
            {"name": "bad", "messages": [system, {"role": "assistant", "tool_calls": [call]}]},
        ],
    )
    with serving(models["llama"], prompts, "--log-level", "DEBUG") as server:
        server.wait_for("entry.failed", entry="bad")
        server.wait_for("entry.warmed", entry="good")
        question = {"role": "user", "content": f"Say {CANARY}"}
        server.chat([system, question], tools=tools)
        for body in (
            b"{" + CANARY.encode(),
            [CANARY],
            {"messages": CANARY},
            {"messages": [{"role": CANARY, "content": [{"type": CANARY}]}]},
            {"messages": [system, question], "model": CANARY},
            {"messages": [system, question], "temperature": CANARY},
        ):
            assert server.post("/v1/chat/completions", body)[0] in (400, 404)
        server.post(f"/{CANARY}?{CANARY}", {})
        prompts.write_text(f'[{{"{CANARY}": "{CANARY}"}}, [{{"role": {CANARY}', encoding="utf-8")
        server.wait_for("prompts.rejected")
        write(prompts, [{CANARY: CANARY, "messages": [{"role": CANARY, CANARY: [CANARY]}]}])
        server.wait_for("prompts.rejected")
        assert server.stop() == 0
        assert CANARY not in "".join(server.lines)
