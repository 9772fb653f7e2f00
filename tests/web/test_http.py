"""Our paths beside mlx-lm's, over real HTTP."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from importlib.resources import files

import pytest

from tests.patience import PATIENCE
from tests.web.stage import Stage, staged
from warmd.engines.mlx_lm.http import listen
from warmd.web.site import PATHS, is_path


@pytest.fixture
def stage() -> Iterator[Stage]:
    with staged("studio.local") as found:
        yield found


@pytest.mark.parametrize("path", [*PATHS, "/warmd/", "/metrics?name=x"])
def test_ours_are_answered_and_may_not_be_read_by_other_sites(stage: Stage, path: str) -> None:
    for host in ("localhost", "127.0.0.1:8080", "studio.local"):
        answer, body = stage.ask(path, Host=host, Origin="http://evil.example")
        assert (answer.status, bool(body)) == (200, True)
        assert [name for name, _ in answer.getheaders() if name.lower().startswith("access-control")] == []
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert "'unsafe" not in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8080", "192.168.1.9", ""])
def test_under_any_other_name_ours_are_refused_in_one_line(stage: Stage, path: str, host: str) -> None:
    answer, body = stage.ask(path, Host=host)
    assert (answer.status, body.count("\n"), body.endswith("\n")) == (403, 1, True)
    assert answer.headers["Access-Control-Allow-Origin"] is None
    assert stage.looks == 0


@pytest.mark.parametrize(
    "head", ["GET /metrics HTTP/1.0", "GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: b"]
)
def test_a_request_without_one_host_is_refused(stage: Stage, head: str) -> None:
    with socket.create_connection(("127.0.0.1", stage.port), timeout=PATIENCE) as client:
        client.sendall(f"{head}\r\n\r\n".encode())
        assert client.makefile("rb").readline().split()[1] == b"403"


@pytest.mark.parametrize("path", PATHS)
def test_head_is_the_same_without_a_body(stage: Stage, path: str) -> None:
    with_body, body = stage.ask(path)
    answer, nothing = stage.ask(path, method="HEAD")
    assert (answer.status, nothing) == (200, "")
    assert answer.headers["Content-Type"] == with_body.headers["Content-Type"]
    if path in ("/warmd", "/readyz"):
        assert answer.headers["Content-Length"] == str(len(body.encode()))
    assert stage.ask(path, method="HEAD", Host="evil.example")[0].status == 403


@pytest.mark.parametrize("path", PATHS)
def test_a_preflight_gets_no_permission(stage: Stage, path: str) -> None:
    answer, _ = stage.ask(path, method="OPTIONS", Origin="http://evil.example")
    assert answer.headers["Allow"] == "GET, HEAD, OPTIONS"
    assert answer.headers["Access-Control-Allow-Origin"] is None
    assert stage.ask(path, method="POST")[0].status == 404


def test_mlx_lm_s_own_answer_as_before(stage: Stage) -> None:
    answer, body = stage.ask("/health", Host="evil.example")
    assert (answer.status, json.loads(body)) == (200, {"status": "ok"})
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    for path in ("/", "/warmdx", "/warmd/status/x", "/metrics/", "/Metrics", "/nothing"):
        answer, body = stage.ask(path)
        assert (path, is_path(path), answer.status, body) == (path, False, 404, "Not Found")
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
    answer, _ = stage.ask("/v1/chat/completions", method="OPTIONS")
    assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (204, "*")
    assert stage.ask("/health", method="HEAD")[0].status == 501


def test_the_status_has_the_events(stage: Stage) -> None:
    answer, body = stage.ask("/warmd/status")
    status = json.loads(body)
    assert answer.headers["Content-Type"] == "application/json"
    assert [entry["state"] for entry in status["entries"]][:3] == ["warm", "warming", "pending"]
    assert (status["memory"]["limit"], status["totals"]["hits"]) == (16_000 << 20, 43)
    assert status["events"][-1]["fields"] == {
        "entry": "docs",
        "tokens": 40_002,
        "matched": 1_530,
        "prefix_tokens": 39_870,
        "cached": 0,
    }


def test_ready_means_alive_and_not_warm(stage: Stage) -> None:
    answer, body = stage.ask("/readyz")
    expected = {
        "ready": True,
        "reason": None,
        "pid": os.getpid(),
        "model": "/models/Qwen3-8B-4bit",
        "entries": 6,
        "warm": 1,
    }
    assert (answer.status, json.loads(body)) == (200, expected)
    stage.problem = "the model is being loaded"
    answer, body = stage.ask("/readyz")
    assert (answer.status, json.loads(body)["reason"]) == (503, "the model is being loaded")
    stage.problem, stage.is_stuck = None, True
    answer, body = stage.ask("/readyz")
    assert (answer.status, json.loads(body)["reason"]) == (503, "the daemon does not answer")


@pytest.mark.parametrize("path", ["/warmd/status", "/metrics"])
def test_a_daemon_that_does_not_answer_is_said(stage: Stage, path: str) -> None:
    stage.is_stuck = True
    answer, body = stage.ask(path)
    assert (answer.status, body) == (503, "the daemon does not answer\n")


def test_the_page_needs_nothing_else(stage: Stage) -> None:
    answer, body = stage.ask("/warmd")
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "/*" + "STYLE*/" not in body
    assert " src=" not in body
    assert "@import" not in body
    assert "innerHTML" not in body
    assert stage.looks == 0
    assert {part.name for part in files("warmd.web").iterdir()} >= {"page.html", "page.css", "page.js"}


def test_many_clients_may_connect_at_the_same_time() -> None:
    # As while a model is loaded: nobody accepts yet.
    server = listen("127.0.0.1", 0)
    clients: list[socket.socket] = []
    try:
        for _ in range(64):
            clients.append(socket.create_connection(("127.0.0.1", server.server_port), timeout=PATIENCE))
    finally:
        for client in clients:
            client.close()
        server.server_close()
