"""Waiting for the server, and what a process has left to say."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.serving.process import free_port
from warmd.launchd.flags import is_host
from warmd.launchd.last_words import last_words
from warmd.launchd.launchctl import JobState
from warmd.launchd.ready import (
    OLDER,
    Address,
    Outcome,
    Readiness,
    ask_ready,
    is_anothers,
    wait_until_ready,
)

READY = (200, b'{"ready": true, "reason": null, "pid": 7, "model": "m", "entries": 1, "warm": 0}')
LOADING = (503, b'{"ready": false, "reason": "the model is being loaded", "pid": 7, "warm": null}')
OTHER = (200, b"<html>hello</html>")


@contextmanager
def answering(*answers: tuple[int, bytes]) -> Iterator[Address]:
    """A server that gives one answer after the other, and the last one from then on."""
    listed = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = listed.pop(0) if len(listed) > 1 else listed[0]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Address("127.0.0.1", server.server_address[1])
        server.shutdown()


@contextmanager
def sending(*pieces: bytes) -> Iterator[Address]:
    """A server that sends pieces, whatever it is asked, the last one until nobody listens."""

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    for piece in pieces[:-1]:
                        connection.sendall(piece)
                    while pieces[-1]:
                        connection.sendall(pieces[-1])
                        time.sleep(0.01)
                    connection.shutdown(socket.SHUT_WR)
                    # Otherwise the system would hang up before what was sent has been read.
                    while connection.recv(1 << 16):
                        pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield Address("127.0.0.1", listener.getsockname()[1])


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def clock(self) -> float:
        return self.now


def wait(address: Address, job: JobState | None, runs_before: int = 0) -> Outcome:
    moments = Time()
    return wait_until_ready(
        address, lambda: job, 3, runs_before=runs_before, sleep=moments.sleep, clock=moments.clock
    )


@pytest.mark.parametrize(
    ("arguments", "url"),
    [
        ((), "http://127.0.0.1:8080"),
        (("--port", "81", "--host=0.0.0.0"), "http://127.0.0.1:81"),
        (("--host", "::"), "http://[::1]:8080"),
        (("--host", "mac.local", "--port", "x"), "http://mac.local:8080"),
        (("--port", "²"), "http://127.0.0.1:8080"),
        (("--port", "99999"), "http://127.0.0.1:8080"),
    ],
)
def test_where_the_server_listens(arguments: tuple[str, ...], url: str) -> None:
    assert Address.of(arguments).url == url


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (READY, Readiness(True, None, 7)),
        ((200, b'{"warm": 0, "pid": "7"}'), Readiness(True)),
        ((503, b'{"warm": 0, "reason": "\\u001b[31mred\\n"}'), Readiness(False, "[31mred")),
        ((503, b'{"warm": 0, "reason": {"a": 1}}'), Readiness(False, "{'a': 1}")),
        ((302, b'{"warm": 0}'), Readiness(False)),
        ((200, b"[" * 100_000), None),
        ((200, b'\xff\xfe{"warm"'), None),
        ((200, b" " * (1 << 20) + b'{"warm": 0}'), None),
        (LOADING, Readiness(False, "the model is being loaded", 7)),
        (OTHER, None),
        ((404, b"no"), None),
        ((200, b"[]"), None),
    ],
)
def test_who_answers(answer: tuple[int, bytes], expected: Readiness | None) -> None:
    with answering(answer) as address:
        assert ask_ready(address) == expected
        assert address.is_taken()


def test_a_proxy_of_the_shell_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with answering(READY) as address:
        assert ask_ready(address) == Readiness(True, None, 7)


@pytest.mark.parametrize(
    "pieces",
    [
        (b"SSH-2.0-OpenSSH_9\r\n", b""),
        (b"garbage\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n", b""),
        (b"",),
        # What would go on for ever.
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
        (b"x",),
    ],
)
def test_whatever_answers_is_no_warmd_and_ends(pieces: tuple[bytes, ...]) -> None:
    with sending(*pieces) as address:
        assert ask_ready(address, seconds=0.5) is None
        assert address.is_taken()


@pytest.mark.parametrize("host", ["my host", "x" * 64, "a\x1b", "a..b"])
def test_what_is_no_host_answers_nothing(host: str) -> None:
    assert not is_host(host)
    assert (ask_ready(Address(host)), Address(host).is_taken()) == (None, False)


@pytest.mark.parametrize("host", ["127.0.0.1", "::", "fe80::1", "mac.local", "mac_1", "a.b."])
def test_what_can_be_a_host(host: str) -> None:
    assert is_host(host)


def test_whose_server_answers_is_told_by_its_process() -> None:
    with answering(READY) as address:
        assert [is_anothers(address, pid) for pid in (7, 8, None)] == [False, True, True]
    with answering(OTHER) as address:
        # It may be the process, which hangs.
        assert [is_anothers(address, pid) for pid in (8, None)] == [False, True]
    assert not is_anothers(Address("127.0.0.1", free_port()), None)


def test_nobody_answers() -> None:
    address = Address("127.0.0.1", free_port())
    assert (ask_ready(address), address.is_taken()) == (None, False)


def test_a_server_that_loads_is_waited_for() -> None:
    with answering(LOADING, LOADING, READY) as address:
        assert wait(address, JobState(pid=7, runs=1)) == Outcome("ready")


def test_a_server_of_another_process_is_not_the_one_that_is_waited_for() -> None:
    with answering(READY) as address:
        assert wait(address, JobState(pid=8, runs=1)) == Outcome("taken", "another warmd, pid 7")
        assert wait(address, JobState(runs=1, last_exit=3)) == Outcome("failed", "exit code 3")
        assert wait(address, JobState()) == Outcome("loading", "launchd names no process of the service")


def test_a_server_of_an_older_version_does_not_tell_its_process() -> None:
    with answering((503, b'{"warm": null, "reason": "loading"}'), (200, b'{"warm": 0}')) as address:
        assert wait(address, JobState(pid=8)) == Outcome("ready", OLDER)
        assert wait(address, JobState()) == Outcome("loading", "launchd names no process of the service")
    with answering((503, b'{"warm": null, "reason": "loading"}')) as address:
        assert wait(address, JobState(pid=8)) == Outcome("loading", "loading")


def test_a_port_that_another_program_has_is_told() -> None:
    with answering(OTHER) as address:
        what = "a program that is not warmd, or the server hangs"
        assert wait(address, JobState(pid=8)) == Outcome("taken", what)


def test_one_look_at_the_job_may_fail() -> None:
    looks: list[JobState | None] = [None, None, JobState(pid=7)]
    moments = Time()
    with answering(READY) as address:
        found = wait_until_ready(address, lambda: looks.pop(0), 60, sleep=moments.sleep, clock=moments.clock)
    assert found == Outcome("ready")


def test_a_server_that_goes_on_loading_is_said_to() -> None:
    with answering(LOADING) as address:
        assert wait(address, JobState(pid=7, runs=1)) == Outcome("loading", "the model is being loaded")


@pytest.mark.parametrize(
    ("job", "runs_before", "expected"),
    [
        (JobState(runs=1, last_exit=3), 0, Outcome("failed", "exit code 3")),
        (JobState(runs=1, last_exit=0), 0, Outcome("failed", "exit code 0")),
        (JobState(runs=2, last_signal="Killed: 9"), 1, Outcome("failed", "signal Killed: 9")),
        # The end of the process that was restarted.
        (JobState(runs=1, last_signal="Killed: 9"), 1, Outcome("loading")),
        (JobState(), 0, Outcome("loading")),
        (None, 0, Outcome("failed", "launchd has dropped the job")),
    ],
)
def test_a_process_that_has_ended_is_not_waited_for(
    job: JobState | None, runs_before: int, expected: Outcome
) -> None:
    assert wait(Address("127.0.0.1", free_port()), job, runs_before) == expected


def test_the_last_words_are_the_reason_in_the_newest_file(tmp_path: Path) -> None:
    log, stderr = tmp_path / "warmd.jsonl", tmp_path / "launchd.log"
    assert last_words(log, tmp_path) == last_words(None, tmp_path) == []
    log.write_text('{"event": "daemon.stopped", "reason": "no such model"}\n\n')
    assert last_words(log, tmp_path) == ["no such model"]
    # Whoever is killed leaves none.
    log.write_text('{"ts": "2026", "level": "info", "event": "entry.warming", "tokens": 5}\n')
    assert last_words(log, tmp_path) == ["the last that it logged is entry.warming"]
    stderr.write_text("x" * 9000 + "\nusage: …\nwarmd: error: unrecognized arguments: --x\n")
    os.utime(log, (1, 1))
    assert last_words(log, tmp_path) == ["warmd: error: unrecognized arguments: --x"]


def test_last_words_are_a_line_for_a_terminal_and_not_those_of_another_start(tmp_path: Path) -> None:
    log = tmp_path / "warmd.jsonl"
    log.write_text('{"reason": "\\u001b[31mred\\nline"}\n')
    assert last_words(log, tmp_path) == ["[31mred line"]
    assert last_words(log, tmp_path, log.stat().st_mtime + 1) == []
    log.write_text("[" * 5000 + "\n")
    assert last_words(log, tmp_path) == ["[" * 500]
    assert last_words(tmp_path / "no" / "log", tmp_path / "none") == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://[::1]:9"])
def test_an_address_is_read_from_what_a_daemon_says(url: str) -> None:
    assert Address.of_url(url).url == url


def test_a_server_that_listens_everywhere_is_called_here() -> None:
    assert Address.of_url("http://0.0.0.0:9").url == "http://127.0.0.1:9"
