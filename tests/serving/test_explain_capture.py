"""`warmd explain` and `warmd capture` beside a real server, as a user calls them."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.commands.terminal import make_environment, outcome, warmd
from tests.patience import PATIENCE
from tests.serving.process import Json, Server, cached, serving, write
from warmd.prompts import load_document

CANARY = "XYZZYPLUGH"
RULES = f"You are a careful reviewer of {CANARY} code. " * 12
TOOLS = [
    {"function": {"parameters": {"type": "object"}, "name": name, "description": CANARY}, "type": "function"}
    for name in ("read", "write")
]


def ask(content: str | None, question: str = "hello there") -> list[Json]:
    system = [{"role": "system", "content": content}] if content is not None else []
    return [*system, {"role": "user", "content": question}]


def explained(server: Server, tmp_path: Path, *args: str) -> Json:
    done = warmd("explain", "--json", *args, cwd=tmp_path, WARMD_STATE_DIR=server.state.name)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def captured(server: Server, tmp_path: Path, requests: list[Json], *args: str) -> tuple[int, str, str]:
    """Let `warmd capture` wait while requests are sent, again and again until it ends."""
    with subprocess.Popen(
        [sys.executable, "-m", "warmd", "capture", *args],
        cwd=tmp_path,
        env=make_environment(tmp_path, WARMD_STATE_DIR=server.state.name),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stderr.readline()
        while process.poll() is None and first.startswith("waiting"):
            for request in requests:
                server.chat(**request)
        # Not `communicate`: it does not know of lines that came along with the first.
        out, error = process.stdout.read(), process.stderr.read()
        return process.wait(PATIENCE), out, first + error


def test_explain_shows_the_texts_on_the_terminal_and_nowhere_else(
    models: dict[str, Path], tmp_path: Path
) -> None:
    messages = [{"role": "system", "content": RULES + "Today is 2025-06-01."}]
    write(tmp_path / "p.json", [{"name": "coder", "messages": messages, "tools": TOOLS}])
    with serving(models["llama"], tmp_path / "p.json", "--log-level", "DEBUG") as server:
        server.wait_for("entry.warmed")
        content = RULES + "Today is 2025-06-02."
        server.chat(ask(content), tools=TOOLS)
        server.wait_for("live.near_miss", entry="coder")
        (miss,) = explained(server, tmp_path)["near_misses"]
        assert (miss["place"], miss["cause"]) == ("messages[0] (system)", "date")
        assert (miss["excerpt"]["entry"], miss["excerpt"]["request"]) == ("1.", "2.")
        done = warmd("explain", "coder", cwd=tmp_path, WARMD_STATE_DIR=server.state.name)
        assert done.returncode == 0
        assert f"of {CANARY} code. Today is 2025-06-0\n    entry    1.\n    request  2.\n" in done.stdout
        # The tools come after the system text in this template.
        server.chat(ask(messages[0]["content"]), tools=TOOLS[::-1])
        server.wait_for("live.near_miss", entry="coder")
        (_, miss) = explained(server, tmp_path, "coder")["near_misses"]
        assert (miss["place"], miss["cause"]) == ("tools[0]", "tools_order")
        unknown = warmd("explain", "other", cwd=tmp_path, WARMD_STATE_DIR=server.state.name)
        assert outcome(unknown) == (
            1,
            "",
            "warmd: no entry is named 'other'; `warmd status` names those there are\n",
        )
        for page in ("/warmd", "/warmd/status", "/metrics", "/readyz"):
            with urllib.request.urlopen(
                f"http://127.0.0.1:{server.port}{page}", timeout=PATIENCE
            ) as response:
                assert CANARY not in response.read().decode()
        assert server.stop() == 0
        assert CANARY not in "".join(server.lines)


def test_a_hit_is_no_near_miss(models: dict[str, Path], tmp_path: Path) -> None:
    write(tmp_path / "p.json", [{"name": "coder", "messages": ask(RULES)[:1]}])
    with serving(models["llama"], tmp_path / "p.json") as server:
        server.wait_for("entry.warmed")
        server.chat(ask(RULES))
        server.wait_for("live.hit")
        found = explained(server, tmp_path)
        assert found["near_misses"] == []
        assert [(entry["name"], entry["state"], entry["hits"]) for entry in found["entries"]] == [
            ("coder", "warm", 1)
        ]


def test_every_request_that_begins_with_an_entry_is_a_hit_of_it(
    models: dict[str, Path], tmp_path: Path
) -> None:
    write(tmp_path / "p.json", [{"name": "coder", "messages": ask(RULES)[:1]}])
    with serving(models["llama"], tmp_path / "p.json") as server:
        size = server.wait_for("entry.warmed")["tokens"]
        turn = [*ask(RULES, "first"), {"role": "assistant", "content": "yes"}, *ask(None, "second")]
        # Another conversation, one that begins with the same words, the same once more, and a later turn.
        for messages in (ask(RULES, "hello"), ask(RULES, "hello there"), ask(RULES, "hello there"), turn):
            assert cached(server.chat(messages)) >= size
            server.wait_for("live.hit", entry="coder")
        (entry,) = explained(server, tmp_path)["entries"]
        assert entry["hits"] == 4
        # mlx-lm's own cache had more of those that began as one before.
        assert size <= entry["tokens_saved"] <= 2 * size


def test_a_captured_entry_is_warmed_and_serves_the_next_request(
    models: dict[str, Path], tmp_path: Path
) -> None:
    prompts = tmp_path / "p.json"
    prompts.write_text('[\n  {"name": "old", "messages": [{"role": "system", "content": "Old."}]}\n]\n')
    with serving(models["llama"], prompts) as server:
        server.wait_for("entry.warmed", entry="old")
        request = {"messages": ask(RULES + "\n"), "tools": TOOLS}
        code, out, error = captured(server, tmp_path, [request], "agent", "--save")
        assert code == 0, error
        assert out.endswith(f"agent: added to {prompts}, with prompts/agent.md and tools/agent.json\n")
        entry = load_document(prompts).entries[1]
        assert entry.messages[0]["content"] == RULES + "\n"
        assert json.dumps(entry.tools) == json.dumps(TOOLS)
        tokens = server.wait_for("entry.warmed", entry="agent")["tokens"]
        assert f"{tokens:,} tokens to be kept warm" in out
        assert "warning" not in out
        answer = server.chat(ask(RULES + "\n", "another question"), tools=TOOLS)
        assert cached(answer) >= tokens
        again = warmd("capture", "agent", "--save", cwd=tmp_path, WARMD_STATE_DIR=server.state.name)
        assert again.returncode == 1
        # At once: nobody made an agent talk for nothing.
        told = (
            f"warmd: nothing was saved to {prompts}: it has an entry 'agent' already; --replace replaces it\n"
        )
        assert again.stderr == told
        assert server.stop() == 0
        assert CANARY not in "".join(server.lines)


@pytest.mark.parametrize(
    ("requests", "args", "code", "expected"),
    [
        ([{"messages": ask(RULES, text)} for text in "ab"], ["--common", "2"], 0, "nothing was saved"),
        ([{"messages": ask(None)}], [], 1, "nothing precedes the user's text"),
        ([], ["--timeout", "0.2"], 1, "no chat request came within 0.2 s"),
        ([], ["--timeout", "0"], 2, "--timeout"),
        ([], ["--common", "0"], 2, "--common"),
        ([], ["--replace"], 2, "--replace goes with --save"),
        ([], ["--common", "99"], 1, "from 1 to 32"),
    ],
)
def test_other_ways_to_capture(
    capture_server: Any, tmp_path: Path, requests: Any, args: Any, code: int, expected: str
) -> None:
    found = captured(capture_server, tmp_path, requests, "agent", *args)
    assert found[0] == code, found
    assert expected in found[1] + found[2]


@pytest.fixture(scope="module")
def capture_server(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("capture")
    write(folder / "p.json", [])
    with serving(models["llama"], folder / "p.json") as server:
        server.wait_for("daemon.ready")
        yield server


@pytest.mark.parametrize("command", [("explain",), ("capture", "x")])
def test_without_a_daemon(command: tuple[str, ...], tmp_path: Path) -> None:
    done = warmd(*command, cwd=tmp_path, WARMD_STATE_DIR=str(tmp_path / "state"))
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("warmd: no daemon is running")
    assert done.stderr.count("\n") == 1
