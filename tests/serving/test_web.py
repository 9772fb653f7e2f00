"""What a real server shows over HTTP while it works."""

from __future__ import annotations

import http.client
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.patience import PATIENCE
from tests.serving.process import Json, Server, serving, write
from tests.web.chromium import Tab, browsing, needs_chromium

CANARY = "XYZZYPLUGH"
RULES = "You are a careful reviewer of code. " * 12
PATHS = ("/warmd/status", "/metrics", "/readyz", "/warmd")


def system(content: str) -> list[Json]:
    return [{"role": "system", "content": content}]


def ask(content: str) -> list[Json]:
    return [*system(content), {"role": "user", "content": "hello there"}]


def get(server: Server, path: str, **headers: str) -> tuple[int, str, http.client.HTTPMessage]:
    """Status, body and headers of the answer to a GET."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def status(server: Server) -> Json:
    """The status as a program reads it."""
    code, body, _ = get(server, "/warmd/status")
    assert code == 200
    return dict(json.loads(body))


def metrics(server: Server) -> dict[tuple[str, str | None], float]:
    """Values by name and entry."""
    families = text_string_to_metric_families(get(server, "/metrics")[1])
    return {
        (sample.name, sample.labels.get("entry")): sample.value
        for family in families
        for sample in family.samples
    }


def test_numbers_follow_what_happens(models: dict[str, Path], tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.json"
    write(prompts, [{"name": "rules", "messages": system(RULES)}])
    with serving(models["llama"], prompts) as server:
        tokens = server.wait_for("entry.warmed")["tokens"]
        server.chat(ask(RULES))
        server.wait_for("live.hit")
        server.chat(ask(RULES[:-20] + "and of prose."))
        server.wait_for("live.near_miss")
        found = status(server)
        [entry] = found["entries"]
        assert (entry["name"], entry["state"], entry["tokens"]) == ("rules", "warm", tokens)
        assert (entry["hits"], entry["tokens_saved"], entry["near_misses"]) == (1, tokens, 1)
        assert found["live"] == {"requests": 2, "hits": 1, "tokens_saved": tokens, "near_misses": 1}
        assert (found["pid"], found["document"]["accepted"]) == (server.process.pid, 1)
        assert [event["event"] for event in found["events"]][-2:] == ["live.hit", "live.near_miss"]
        seen = metrics(server)
        assert seen["warmd_entry_warm", "rules"] == 1
        assert seen["warmd_entry_hits_total", "rules"] == 1
        assert seen["warmd_tokens_saved_total", None] == tokens
        assert seen["warmd_entry_near_misses_total", "rules"] == 1
        assert seen["warmd_prompts_last_reload_successful", None] == 1
        assert abs(seen["warmd_prompts_last_reload_success_timestamp_seconds", None] - time.time()) < 600
        assert 0 < seen["warmd_entry_warm_seconds_total", "rules"] < 60
        assert seen["warmd_memory_active_bytes", None] > 0
        prompts.write_text("[", encoding="utf-8")
        server.wait_for("prompts.rejected")
        seen = metrics(server)
        assert seen["warmd_prompts_last_reload_successful", None] == 0
        assert seen["warmd_entries_warm", None] == 1
        assert status(server)["document"]["errors"][0]["line"] == 1


def test_it_is_ready_once_the_model_is_loaded_and_not_before(models: dict[str, Path], tmp_path: Path) -> None:
    write(tmp_path / "prompts.json", [system(RULES * 20)])
    with serving(models["llama"], tmp_path / "prompts.json") as server:
        deadline, before = time.monotonic() + PATIENCE, []
        while time.monotonic() < deadline:
            try:
                code, body, _ = get(server, "/readyz")
            except OSError:
                time.sleep(0.005)
                continue
            if code == 200:
                break
            before.append((code, json.loads(body)["reason"]))
        assert json.loads(body)["ready"] is True
        assert set(before) <= {(503, "the server is starting"), (503, "the model is being loaded")}
        assert server.seen("daemon.started") != []


def test_mlx_lm_answers_as_before_and_ours_only_to_this_machine(
    models: dict[str, Path], tmp_path: Path
) -> None:
    write(tmp_path / "prompts.json", [])
    (tmp_path / "hugging-face" / "hub").mkdir(parents=True)
    environment = {"HF_HOME": str(tmp_path / "hugging-face")}
    flags = ["--host", "localhost"]
    with serving(models["llama"], tmp_path / "prompts.json", *flags, environment=environment) as server:
        server.wait_for("daemon.ready")
        assert get(server, "/health", Host="evil.example")[1] == '{"status": "ok"}'
        assert get(server, "/health")[2]["Access-Control-Allow-Origin"] == "*"
        assert str(models["llama"]) in get(server, "/v1/models")[1]
        assert get(server, "/nothing")[:2] == (404, "Not Found")
        for path in PATHS:
            code, _, headers = get(server, path, Origin="http://evil.example")
            assert (path, code, headers["Access-Control-Allow-Origin"]) == (path, 200, None)
            assert get(server, path, Host=f"evil.example:{server.port}")[0] == 403
        # Whoever polls does not fill the log; whoever is refused is seen.
        logged = [line["message"] for line in server.seen("foreign.logged")]
        assert "GET /metrics 200" not in logged
        assert "GET /metrics 403" in logged


def test_nothing_that_anybody_wrote_is_shown(models: dict[str, Path], tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.json"
    secret = {"role": "system", "content": f"{CANARY} " * 30}
    call = {"function": {"name": "f", "arguments": f'{{"{CANARY}"'}, "type": "function", "id": "1"}
    tools = [{"type": "function", "function": {"name": CANARY, "parameters": {CANARY: CANARY}}}]
    good = {"name": "good", "messages": [secret], "tools": tools}
    bad = {"name": "bad", "messages": [secret, {"role": "assistant", "tool_calls": [call]}]}

    def shown(server: Server) -> str:
        return "".join(get(server, path)[1] for path in PATHS)

    with serving(models["llama"], prompts, "--log-level", "DEBUG") as server:
        server.wait_for("prompts.rejected")
        write(prompts, [good, bad])
        server.wait_for("entry.warmed", entry="good")
        question = {"role": "user", "content": f"Say {CANARY}"}
        for messages in ([secret, question], [{**secret, "content": f"{CANARY} " * 29 + "x"}, question]):
            for _ in range(4):
                server.chat(messages, tools=tools, max_tokens=1)
        server.post("/v1/chat/completions", {"messages": [question], "model": CANARY})
        server.post(f"/{CANARY}?{CANARY}", {})
        assert get(server, f"/warmd?{CANARY}")[0] == 200
        server.wait_for("live.near_miss")
        assert "good" in shown(server)
        assert CANARY not in shown(server)
        prompts.write_text(f'[{{"{CANARY}": "{CANARY}"}}, [{{"role": {CANARY}', encoding="utf-8")
        server.wait_for("prompts.rejected")
        assert CANARY not in shown(server)
        write(prompts, [{CANARY: CANARY, "messages": [{"role": CANARY, CANARY: [CANARY]}]}])
        server.wait_for("prompts.rejected")
        assert CANARY not in shown(server)
        assert server.stop() == 0
        assert CANARY not in "".join(server.lines)


def test_many_clients_and_hanging_ones_hurt_nobody(models: dict[str, Path], tmp_path: Path) -> None:
    write(tmp_path / "prompts.json", [system(RULES)])
    with serving(models["llama"], tmp_path / "prompts.json") as server:
        server.wait_for("entry.warmed")
        hanging = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
        for client in hanging:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: local")
        with ThreadPoolExecutor(50) as threads:
            paths: list[Any] = [PATHS[number % len(PATHS)] for number in range(200)]
            codes = list(threads.map(lambda path: get(server, path)[0], paths))
        assert set(codes) == {200}
        server.chat(ask(RULES))
        for client in hanging:
            client.close()
        assert server.stop() == 0


@needs_chromium
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_shows_an_edit_as_it_is_warmed(models: dict[str, Path], tmp_path: Path, dark: bool) -> None:
    prompts = tmp_path / "prompts.json"
    write(prompts, [{"name": "rules", "messages": system(RULES)}])
    with serving(models["llama"], prompts) as server, browsing(tmp_path / "browser") as browser:
        server.wait_for("entry.warmed")
        address = f"http://127.0.0.1:{server.port}"
        tab = Tab(browser, width=390, dark=dark)
        tab.open(f"{address}/warmd")
        tab.wait_until("document.title.startsWith('All warm')")
        write(
            prompts,
            [{"name": "rules", "messages": system(RULES)}, {"name": "new", "messages": system("x " * 99)}],
        )
        tab.wait_until("document.body.innerText.includes('new') && document.title.startsWith('All warm')")
        server.chat(ask(RULES))
        tab.wait_until("document.getElementById('total-hits').innerText === '1'")
        assert "live.hit" in tab.text()
        assert all(url.startswith((address, "data:", "about:")) for url in tab.requests())
        assert tab.complaints() == []
        assert server.stop() == 0
        tab.wait_until("!document.getElementById('offline').hidden")
