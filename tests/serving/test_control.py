"""Commands against a server that runs."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

from tests.serving.process import PATIENCE, Server, cached, serving, write

RULES = "You are a careful reviewer of code. " * 20
CANARY = "zanzibar-9c1e"


def named(name: str, content: str) -> dict[str, object]:
    return {"name": name, "messages": [{"role": "system", "content": content}]}


def command(server: Server, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "warmd", *args],
        env={**os.environ, "WARMD_STATE_DIR": str(server.state_folder)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_an_operators_day(models: dict[str, Path], tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.json"
    write(prompts, [named("coder", f"{CANARY} {RULES}"), named("shell", "Be brief.")])
    outputs = []
    with serving(models["llama"], prompts) as server:
        server.wait_for("entry.warmed", entry="shell")
        answer = server.chat(
            [{"role": "system", "content": f"{CANARY} {RULES}"}, {"role": "user", "content": "hello"}]
        )
        status = command(server, "status", "--json")
        found = json.loads(status.stdout)
        assert found["pid"] == server.process.pid
        assert found["model"] == str(models["llama"])
        coder, shell = found["entries"]
        assert (coder["state"], coder["hits"], shell["state"], shell["hits"]) == ("warm", 1, "warm", 0)
        assert coder["tokens_saved"] == coder["tokens"] == cached(answer)
        assert found["memory"]["warm"] == found["totals"]["kv_bytes"]

        rewarmed = command(server, "rewarm", "coder")
        assert server.wait_for("entry.dropped")["entry"] == "coder"
        assert server.wait_for("entry.warmed")["entry"] == "coder"

        assert command(server, "resume").stdout == "it was not paused\n"
        paused = command(server, "pause")
        again = command(server, "pause")
        write(prompts, [named("coder", f"{CANARY} {RULES}"), named("late", "Be late.")])
        reloaded = command(server, "reload")
        assert reloaded.stdout == f"{prompts}: generation 2 is in force\n"
        server.wait_for("plan.made", generation=2)
        states = [
            entry["state"] for entry in json.loads(command(server, "status", "--json").stdout)["entries"]
        ]
        assert states == ["warm", "pending"]
        resumed = command(server, "resume")
        server.wait_for("entry.warmed", entry="late")
        shown = command(server, "status")
        done = (status, rewarmed, paused, again, reloaded, resumed, shown)
        assert [(each.returncode, each.stderr) for each in done] == [(0, "")] * 7
        assert [each.stdout for each in (paused, again, resumed)] == [
            "paused: nothing is warmed until `warmd resume`\n",
            "it was paused already: nothing is warmed until `warmd resume`\n",
            "resumed\n",
        ]
        outputs = [each.stdout for each in done]
        assert server.stop() == 0
        assert command(server, "status").returncode == 4
        assert CANARY not in "".join([*outputs, *server.lines])


def test_the_socket_is_the_owners_alone_and_replaced_after_a_kill(
    models: dict[str, Path], tmp_path: Path
) -> None:
    write(tmp_path / "prompts.json", [])
    state = {"WARMD_STATE_DIR": str(tmp_path / "s")}
    path = tmp_path / "s" / "control.sock"
    with serving(models["llama"], tmp_path / "prompts.json", environment=state) as server:
        server.wait_for("daemon.ready")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        server.stop(signal.SIGKILL)
        assert path.is_socket()
    with serving(models["llama"], tmp_path / "prompts.json", environment=state) as server:
        server.wait_for("daemon.ready")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        assert server.stop() == 0
        assert not path.exists()


def test_a_second_daemon_on_a_state_folder_names_the_first(models: dict[str, Path], tmp_path: Path) -> None:
    write(tmp_path / "prompts.json", [])
    state = {"WARMD_STATE_DIR": str(tmp_path / "s")}
    with serving(models["llama"], tmp_path / "prompts.json", environment=state) as first:
        first.wait_for("daemon.ready")
        with serving(models["llama"], tmp_path / "prompts.json", environment=state) as second:
            assert second.wait() == 3
            reason = second.seen("daemon.stopped")[0]["reason"]
        assert f"another warmd (pid {first.process.pid}) uses the state folder" in reason
        assert command_at(tmp_path / "s", "pause") == 0


def command_at(state: Path, name: str) -> int:
    environment = {**os.environ, "WARMD_STATE_DIR": str(state)}
    return subprocess.run(
        [sys.executable, "-m", "warmd", name], env=environment, capture_output=True, timeout=PATIENCE
    ).returncode


def test_without_a_usable_state_folder_it_serves_and_warms(models: dict[str, Path], tmp_path: Path) -> None:
    write(tmp_path / "prompts.json", [named("coder", RULES)])
    (tmp_path / "file").write_text("")
    state = {"WARMD_STATE_DIR": str(tmp_path / "file" / "state")}
    with serving(models["llama"], tmp_path / "prompts.json", environment=state) as server:
        server.wait_for("entry.warmed", entry="coder")
        server.chat([{"role": "user", "content": "hello"}], max_tokens=1)
        assert [line["level"] for line in server.seen("control.failed")] == ["warning"]
        assert command_at(tmp_path / "file" / "state", "status") == 4
        assert server.stop() == 0


def test_clients_that_misbehave_hold_up_neither_commands_nor_requests_nor_the_end(
    models: dict[str, Path], tmp_path: Path
) -> None:
    write(tmp_path / "prompts.json", [named("coder", RULES)])
    with serving(models["llama"], tmp_path / "prompts.json") as server:
        server.wait_for("entry.warmed", entry="coder")
        clients = []
        for data in [b"", b"{", b"\xff\x00\n", b'{"command": "status"}\n', b"x" * 100_000] * 10:
            client = socket.socket(socket.AF_UNIX)
            client.connect(f"{server.state.name}/control.sock")
            client.sendall(data)
            clients.append(client)
        assert command(server, "status").returncode == 0
        server.chat([{"role": "user", "content": "hello"}], max_tokens=1)
        assert server.stop() == 0
        for client in clients:
            client.close()
