"""The control server on a real socket, with clients of every kind."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio.abc import SocketAttribute, SocketStream

from tests.patience import PATIENCE, eventually
from warmd.control.client import ask_at
from warmd.control.errors import ControlError, ControlFailedError, NoDaemonError, NoSocketError
from warmd.control.protocol import LONGEST_REQUEST
from warmd.control.server import CONNECTIONS, ControlServer, Handler

CANARY = "this must not be seen"


async def echo(arguments: dict[str, Any]) -> Any:
    return arguments


async def refuse(arguments: dict[str, Any]) -> Any:
    raise ControlError("not\nnow")


async def fail(arguments: dict[str, Any]) -> Any:
    raise KeyError(CANARY)


async def unspeakable(arguments: dict[str, Any]) -> Any:
    return {CANARY: object()}


async def huge(arguments: dict[str, Any]) -> Any:
    return "x" * (8 << 20)


HANDLERS: dict[str, Handler] = {
    "echo": echo,
    "refuse": refuse,
    "fail": fail,
    "unspeakable": unspeakable,
    "huge": huge,
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "control.sock"


@asynccontextmanager
async def serving(path: Path, *, idle_seconds: float = 10.0, **more: Handler) -> AsyncIterator[None]:
    """A server, and the proof that it still answers at the end."""
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            await tasks.start(ControlServer(path, HANDLERS | more, idle_seconds=idle_seconds).run)
            yield
            assert await asked(path, "echo", still="alive") == {"still": "alive"}
            tasks.cancel_scope.cancel()


async def asked(path: Path, command: str, **arguments: Any) -> Any:
    return await anyio.to_thread.run_sync(lambda: ask_at(path, command, arguments))


async def answer_to(path: Path, data: bytes) -> bytes:
    """What comes back until the server hangs up."""
    async with await anyio.connect_unix(path) as stream:
        with contextlib.suppress(anyio.BrokenResourceError):
            await stream.send(data)
        return await rest_of(stream)


async def rest_of(stream: SocketStream) -> bytes:
    received = bytearray()
    with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            received += await stream.receive()
    return bytes(received)


async def test_a_request_gets_its_result(path: Path) -> None:
    async with serving(path):
        assert await asked(path, "echo", text="ü\n", number=1) == {"text": "ü\n", "number": 1}


async def test_a_refusal_is_one_line(path: Path) -> None:
    async with serving(path):
        with pytest.raises(ControlFailedError, match=r"^not now$"):
            await asked(path, "refuse")


@pytest.mark.parametrize(("command", "kind"), [("fail", "KeyError"), ("unspeakable", "TypeError")])
async def test_a_fault_shows_its_type_and_no_text(path: Path, command: str, kind: str) -> None:
    async with serving(path):
        with pytest.raises(ControlFailedError, match=f"^internal error: {kind}$"):
            await asked(path, command)


async def test_an_unknown_command_names_the_known_ones(path: Path) -> None:
    async with serving(path):
        with pytest.raises(ControlFailedError, match=r"^unknown command; there are echo, fail, huge, "):
            await asked(path, "ehco")


async def test_a_long_answer_arrives_whole(path: Path) -> None:
    async with serving(path):
        assert len(await asked(path, "huge")) == 8 << 20


@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"hello\n",
        b"\x00\xff\xfe\n",
        b"[]\n",
        b"{}\n",
        b'{"command": 1}\n',
        b'{"command": "echo", "x": NaN}\n',
        b"[" * 100_000 + b"\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"x" * LONGEST_REQUEST + b"\n",
    ],
    ids=["empty", "text", "binary", "list", "object", "number", "nan", "deep", "http", "long"],
)
async def test_what_is_no_request_gets_an_error(path: Path, data: bytes) -> None:
    async with serving(path):
        answer = json.loads(await answer_to(path, data))
        assert answer["ok"] is False
        assert answer["error"]


async def test_half_a_line_gets_nothing(path: Path) -> None:
    async with serving(path):
        async with await anyio.connect_unix(path) as stream:
            await stream.send(b'{"command": "ec')
        async with await anyio.connect_unix(path) as stream:
            await stream.send(b'{"command": "ec')
            await stream.send_eof()
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()


async def test_a_request_may_come_in_pieces(path: Path) -> None:
    async with serving(path), await anyio.connect_unix(path) as stream:
        for byte in b'{"command": "echo"}\n':
            await stream.send(bytes([byte]))
        assert json.loads(await stream.receive()) == {"ok": True, "result": {}}


async def test_a_client_that_says_nothing_is_hung_up_on(path: Path) -> None:
    async with serving(path, idle_seconds=0.05), await anyio.connect_unix(path) as stream:
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()


async def test_a_client_that_does_not_read_is_hung_up_on(path: Path) -> None:
    async with serving(path, idle_seconds=0.2), await anyio.connect_unix(path) as stream:
        await stream.send(b'{"command": "huge"}\n')
        # Whoever was hung up on can tell without reading.
        poll = select.poll()
        poll.register(stream.extra(SocketAttribute.raw_socket), 0)
        await eventually(lambda: poll.poll(0))
        assert len(await rest_of(stream)) < 8 << 20


async def test_a_client_that_goes_away_ends_its_command(path: Path) -> None:
    begun, cancelled = anyio.Event(), anyio.Event()

    async def forever(arguments: dict[str, Any]) -> Any:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    async with serving(path, forever=forever):
        async with await anyio.connect_unix(path) as stream:
            await stream.send(b'{"command": "forever"}\n')
            await begun.wait()
        await cancelled.wait()


async def test_a_client_that_goes_away_in_mid_answer_harms_nobody(path: Path) -> None:
    async with serving(path):
        for _ in range(10):
            async with await anyio.connect_unix(path) as stream:
                await stream.send(b'{"command": "huge"}\n')
                await stream.receive(100)


async def test_fifty_clients_at_once_are_all_answered(path: Path) -> None:
    async def ask(number: int) -> None:
        assert await asked(path, "echo", number=number) == {"number": number}

    async with serving(path), anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(ask, number)


async def test_more_clients_than_there_are_places_wait_their_turn(path: Path) -> None:
    silent = []
    async with serving(path, idle_seconds=0.2):
        for _ in range(CONNECTIONS + 20):
            silent.append(socket.socket(socket.AF_UNIX))
            silent[-1].connect(str(path))
        assert await asked(path, "echo") == {}
        for connection in silent:
            connection.close()


async def test_no_file_descriptors_left_is_survived(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warmd.control.server.RETRY_SECONDS", 0.01)
    accept, refusals = socket.socket.accept, [OSError(24, "Too many open files")] * 3

    def refuse_at_first(self: socket.socket) -> Any:
        if refusals:
            raise refusals.pop()
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", refuse_at_first)
    async with serving(path):
        assert await asked(path, "echo") == {}
    assert refusals == []


async def test_the_socket_is_its_owners_alone_and_goes_in_the_end(path: Path) -> None:
    before = os.umask(0)
    try:
        async with serving(path):
            found = os.stat(path)  # noqa: PTH116 - takes no time
            assert stat.S_ISSOCK(found.st_mode)
            assert stat.S_IMODE(found.st_mode) == 0o600
            assert list(path.parent.iterdir()) == [path]
    finally:
        os.umask(before)
    assert list(path.parent.iterdir()) == []


async def test_a_socket_that_was_left_behind_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with pytest.raises(NoDaemonError, match="nobody listens at"):
        await asked(path, "echo")
    async with serving(path):
        assert await asked(path, "echo") == {}


async def test_where_there_can_be_no_socket_it_says_so(tmp_path: Path) -> None:
    server = ControlServer(tmp_path / "missing" / "control.sock", HANDLERS)
    with pytest.raises(NoSocketError, match=r"control\.sock: No such file or directory"):
        await server.run()
    (tmp_path / "control.sock").mkdir()
    with pytest.raises(NoSocketError, match=r"control\.sock: Is a directory"):
        await ControlServer(tmp_path / "control.sock", HANDLERS).run()


def test_without_a_daemon_the_exit_code_is_four(path: Path) -> None:
    with pytest.raises(NoDaemonError) as caught:
        ask_at(path, "status", {})
    assert (caught.value.exit_code, str(caught.value)) == (4, f"no daemon is running (no socket at {path})")


async def test_a_daemon_that_drips_is_given_up_when_the_time_is_up(path: Path) -> None:
    async def drip(stream: SocketStream) -> None:
        with contextlib.suppress(anyio.BrokenResourceError):
            async with stream:
                while True:
                    await stream.send(b" ")
                    await anyio.sleep(0.01)

    listener = await anyio.create_unix_listener(path)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, drip, tasks)
        with pytest.raises(ControlFailedError, match=r"no answer within 0\.3 s"):
            await anyio.to_thread.run_sync(lambda: ask_at(path, "echo", {}, timeout=0.3))
        tasks.cancel_scope.cancel()
