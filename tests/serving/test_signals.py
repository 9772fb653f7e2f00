"""Signals, sent to a real process at every moment."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.patience import PATIENCE, wait_until
from tests.serving.process import beside, free_port, serving, write
from tests.serving.test_control import named
from warmd.signals import REPORT_SIGNALS, Terminal, meaning

RULES = "You are a careful reviewer of code. " * 20
LONG = "You are a careful reviewer of code. " * 1000


def test_sighup_reads_the_file_at_once(models: dict[str, Path], tmp_path: Path) -> None:
    write(tmp_path / "prompts.json", [named("a", RULES)])
    # Nothing else would find a change.
    slow = {"WARMD_WATCH_REHASH": "600", "WARMD_WATCH_POLL": "1", "WARMD_WATCH_SETTLE": "0.1"}
    with serving(models["llama"], tmp_path / "prompts.json", environment=slow) as server:
        server.wait_for("entry.warmed", entry="a")
        write(tmp_path / "prompts.json", [named("b", RULES)])
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("prompts.accepted", generation=2)
        for _ in range(50):
            server.process.send_signal(signal.SIGHUP)
        # In one piece: the file may be read at any moment.
        write(tmp_path / "next.json", [named("c", RULES)])
        (tmp_path / "next.json").replace(tmp_path / "prompts.json")
        server.wait_for("prompts.accepted", generation=3)
        assert server.stop() == 0


@pytest.mark.parametrize("number", REPORT_SIGNALS, ids=lambda number: number.name)
def test_a_line_on_how_things_are_is_logged_on_demand(
    models: dict[str, Path], tmp_path: Path, number: signal.Signals
) -> None:
    write(tmp_path / "prompts.json", [named("a", RULES), named("b", RULES)])
    with serving(models["llama"], tmp_path / "prompts.json") as server:
        server.wait_for("entry.warmed", entry="b")
        server.process.send_signal(number)
        found = server.wait_for("daemon.reported")
        expected = {"entries": 2, "warm": 2, "generation": 1, "paused": False, "hits": 0}
        assert {key: found[key] for key in expected} == expected
        assert server.stop() == 0


def wait_until_caught(pid: int, number: signal.Signals) -> None:
    """Wait until a process has a handler for a signal: before, the interpreter itself is being started."""

    def is_caught() -> int:
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.partition("SigCgt:")[2].split()[0], 16) & 1 << number - 1

    wait_until(is_caught)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells what a process catches")
@pytest.mark.parametrize("delay", [0.0, 0.7, 1.4, 2.1])
def test_while_it_starts_other_signals_than_a_stop_do_not_end_it(
    models: dict[str, Path], tmp_path: Path, delay: float
) -> None:
    write(tmp_path / "prompts.json", [named("a", RULES)])
    with serving(models["llama"], tmp_path / "prompts.json") as server:
        wait_until_caught(server.process.pid, signal.SIGUSR1)
        # Whatever it is doing by then.
        time.sleep(delay)
        for number in (signal.SIGHUP, *REPORT_SIGNALS):
            server.process.send_signal(number)
        server.wait_for("entry.warmed", entry="a")
        assert server.stop() == 0


@pytest.mark.promise(6)
def test_a_second_signal_forces_while_answers_are_still_given(
    models: dict[str, Path], tmp_path: Path
) -> None:
    write(tmp_path / "prompts.json", [named("a", RULES)])
    with serving(models["llama"], tmp_path / "prompts.json") as server:
        server.wait_for("entry.warmed", entry="a")
        # An answer that would take minutes, and that nobody reads to its end.
        body = json.dumps(
            {"messages": [{"role": "user", "content": "x"}], "max_tokens": 30_000, "stream": True}
        )
        request = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}"
        )
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(request.encode())
            assert client.recv(10)
            server.process.send_signal(signal.SIGTERM)
            server.wait_for("daemon.stopping")
            server.process.send_signal(signal.SIGTERM)
            assert server.wait() == 128 + signal.SIGTERM
        assert server.seen("daemon.stopped") == []


@pytest.mark.parametrize("redirected", [None, "stdout", "stderr"])
def test_a_terminal_that_is_closed_stops_it(redirected: str | None) -> None:
    terminal, end = pty.openpty()
    with contextlib.closing(os.fdopen(end, "w")) as there, Path(os.devnull).open("w") as elsewhere:
        streams = [elsewhere if name == redirected else there for name in ("stdout", "stderr")]
        seen = Terminal(*streams)
        assert meaning(signal.SIGHUP, seen) == "reload"
        os.close(terminal)
        assert meaning(signal.SIGHUP, seen) == "stop"


def test_a_server_whose_terminal_is_closed_stops(models: dict[str, Path], tmp_path: Path) -> None:
    write(tmp_path / "prompts.json", [])
    log = tmp_path / "log"
    arguments = ["--model", str(models["llama"]), "--prompts", str(tmp_path / "prompts.json")]
    command = [sys.executable, "-m", "warmd", "serve", "--port", str(free_port()), *arguments]
    terminal, end = pty.openpty()
    with log.open("w") as file:
        process = subprocess.Popen(command, stdin=end, stdout=end, stderr=file, start_new_session=True)
    os.close(end)
    try:
        wait_until(lambda: "daemon.ready" in log.read_text())
        os.close(terminal)
        # There is no session leader that would get it from the system.
        process.send_signal(signal.SIGHUP)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells what a process catches")
def test_a_sidecar_that_starts_is_ended_by_a_stop_alone_and_with_zero(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with beside("http://127.0.0.1:1", tmp_path / "prompts.json") as sidecar:
            # As soon as it is more than an interpreter, which is long before it has read its flags.
            wait_until_caught(sidecar.process.pid, signal.SIGUSR1)
            for other in (signal.SIGHUP, *REPORT_SIGNALS, number):
                sidecar.process.send_signal(other)
            assert sidecar.wait() == 0


def test_a_signal_means_the_same_wherever_it_comes_from() -> None:
    terminal = Terminal(io.StringIO())
    found = {number: meaning(number, terminal) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    assert found == {signal.SIGTERM: "stop", signal.SIGINT: "stop", signal.SIGHUP: "reload"}
    assert {meaning(number, terminal) for number in REPORT_SIGNALS} == {"report"}


STOPPED_EARLY = """
import os, signal, sys, time
from warmd.logs import Log
from warmd.signals import hold_signals
hold_signals({emit})
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(3600)
"""


@pytest.mark.parametrize(
    ("emit", "said"),
    [
        ("None", []),
        ("Log(sys.stderr)", [("daemon.stopped", 0, "SIGTERM")]),
        # A log that takes nothing, as its lock is held by what the signal has interrupted.
        ("lambda event: time.sleep(3600)", []),
    ],
)
def test_a_stop_before_signals_are_followed_has_its_line_where_there_is_a_log(
    emit: str, said: list[tuple[str, int, str]]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STOPPED_EARLY.format(emit=emit)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 0
    assert [(line["event"], line["exit_code"], line["reason"]) for line in lines] == said


STOPPED_TWICE = """
import os, signal, time
from warmd.signals import hold_signals
def emit(event):
    print(event.name, flush=True)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(3600)
hold_signals(emit)
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_second_stop_before_signals_are_followed_forces_and_tells_nothing_twice() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STOPPED_TWICE], capture_output=True, text=True, timeout=PATIENCE
    )
    assert (done.returncode, done.stdout.split()) == (128 + signal.SIGINT, ["daemon.stopped"])
    assert done.stderr == ""
