"""Starting, stopping and dying."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.serving.process import free_port, serving, write

LONG = "You are a careful reviewer of code. " * 400


def system(content: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": content}]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_an_idle_server_with_zero(
    models: dict[str, Path], tmp_path: Path, number: int
) -> None:
    write(tmp_path / "prompts.json", [])
    with serving(models["llama"], tmp_path / "prompts.json") as server:
        server.wait_for("daemon.ready")
        assert server.stop(number) == 0
        stopped = server.seen("daemon.stopped")
        assert [(line["exit_code"], line["reason"]) for line in stopped] == [(0, signal.Signals(number).name)]
        assert server.process.stdout is not None
        assert server.process.stdout.read() == b""


@pytest.mark.parametrize("delay", [0.5, 1.2, 2.0])
def test_a_signal_stops_a_server_that_is_starting(
    models: dict[str, Path], tmp_path: Path, delay: float
) -> None:
    write(tmp_path / "prompts.json", [system("x")])
    with serving(models["llama"], tmp_path / "prompts.json") as server:
        # Whatever it is doing by then, from importing to warming.
        time.sleep(delay)
        assert server.stop() in (0, -signal.SIGTERM)


@pytest.mark.promise(6)
def test_a_signal_stops_a_server_in_the_middle_of_warming(models: dict[str, Path], tmp_path: Path) -> None:
    write(tmp_path / "prompts.json", [system(f"{number} {LONG}") for number in range(20)])
    with serving(models["llama"], tmp_path / "prompts.json") as server:
        server.wait_for("entry.warming")
        assert server.stop() == 0


def test_a_port_that_is_taken_is_said_in_one_line(models: dict[str, Path], tmp_path: Path) -> None:
    write(tmp_path / "prompts.json", [])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with serving(models["llama"], tmp_path / "prompts.json", "--port", port) as server:
            assert server.wait() == 3
            assert [line["reason"] for line in server.seen("daemon.stopped")] == [
                f"cannot listen on 127.0.0.1:{port}: Address already in use; `--port N` takes another port, "
                "and `warmd status` tells whether warmd runs already"
            ]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda folder: None, "no such folder"),
        (lambda folder: folder.mkdir(), "the folder has no config.json"),
        (lambda folder: folder.write_text("x"), "expected a folder, found a file"),
    ],
    ids=["missing", "empty", "file"],
)
def test_a_model_that_is_not_there_is_said_in_one_line(tmp_path: Path, make: object, reason: str) -> None:
    folder = tmp_path / "model"
    assert callable(make)
    make(folder)
    write(tmp_path / "prompts.json", [])
    with serving(folder, tmp_path / "prompts.json") as server:
        assert server.wait() == 3
        assert len(server.lines) == 1
        assert server.seen("daemon.stopped")[0]["reason"] == f"cannot load the model '{folder}': {reason}"


@pytest.mark.parametrize(
    ("flag", "missing", "reason"),
    [
        ("--draft-model", "/nope", "no such folder"),
        ("--adapter-path", "/nope", "expected a folder with an adapter"),
        (
            "--draft-model",
            "nosuch/nosuch-model",
            "not a folder, not in the local cache, and cannot be downloaded (HF_HUB_OFFLINE is set)",
        ),
    ],
)
def test_of_what_is_given_beside_the_model_the_right_one_is_named(
    models: dict[str, Path], tmp_path: Path, flag: str, missing: str, reason: str
) -> None:
    write(tmp_path / "prompts.json", [])
    with serving(models["llama"], tmp_path / "prompts.json", flag, missing) as server:
        assert server.wait() == 3
        assert server.seen("daemon.stopped")[0]["reason"] == f"cannot load the model {missing!r}: {reason}"


def test_a_model_that_mlx_lm_cannot_load_is_explained(models: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for file in models["llama"].iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "config.json").write_text('{"model_type": "no_such_architecture"}')
    write(tmp_path / "prompts.json", [])
    with serving(folder, tmp_path / "prompts.json") as server:
        assert server.wait() == 3
        assert [line["event"] for line in map(json.loads, server.lines) if line["level"] == "error"] == [
            "daemon.stopped"
        ]
        reason = server.seen("daemon.stopped")[0]["reason"]
        assert reason.startswith(f"cannot load the model '{folder}': ValueError: Model type no_such_arch")


@pytest.mark.promise(8)
def test_a_dead_engine_thread_ends_the_process_with_one(models: dict[str, Path], tmp_path: Path) -> None:
    write(tmp_path / "prompts.json", [])
    with serving(models["llama"], tmp_path / "prompts.json") as server:
        server.wait_for("daemon.ready")
        # mlx-lm's server samples on the engine's thread, outside of any handler.
        body = {"messages": system("x"), "temperature": 1, "top_k": 10**6}
        with contextlib.suppress(OSError):
            # Nobody is left to answer.
            server.post("/v1/chat/completions", body)
        server.wait_for("engine.died")
        assert server.wait() == 1


def test_it_serves_while_the_prompts_file_is_missing(models: dict[str, Path], tmp_path: Path) -> None:
    prompts = tmp_path / "later" / "prompts.json"
    with serving(models["llama"], prompts) as server:
        server.wait_for("prompts.rejected")
        assert server.wait_for("daemon.ready")["entries"] == 0
        server.chat([{"role": "user", "content": "hello"}], max_tokens=1)
        write(prompts, [system("You are a careful reviewer of code. " * 5)])
        server.wait_for("entry.warmed")


def test_a_closed_standard_error_is_no_reason_to_stop(models: dict[str, Path], tmp_path: Path) -> None:
    write(tmp_path / "prompts.json", [])
    port = free_port()
    command = f"exec {sys.executable} -m warmd serve --model {models['llama']} --port {port} "
    with subprocess.Popen(["sh", "-c", f"{command} --prompts {tmp_path}/prompts.json 2>&-"]) as process:
        try:
            assert answers(port)
            process.terminate()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def test_logs_that_nobody_reads_hold_up_neither_answers_nor_the_end(
    models: dict[str, Path], tmp_path: Path
) -> None:
    write(tmp_path / "prompts.json", [])
    port = free_port()
    files = ["--model", str(models["llama"]), "--prompts", str(tmp_path / "prompts.json")]
    command = [sys.executable, "-m", "warmd", "serve", *files, "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            # More lines than a pipe holds.
            assert all(answers(port) for _ in range(700))
            process.terminate()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def answers(port: int) -> bool:
    """Wait until something says that it is healthy."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=PATIENCE) as response:
                return bool(response.status == 200)
        except OSError:
            time.sleep(0.1)
    return False


def test_flags_of_the_host_server_are_checked_by_it(models: dict[str, Path], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "warmd", "serve", "--model", str(models["llama"]), "--no-such-flag"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert found.returncode == 2
    assert "unrecognized arguments: --no-such-flag" in found.stderr
    assert "Traceback" not in found.stderr
