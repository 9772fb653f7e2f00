"""The daemon's end of the control socket.

A connection carries one request and its answer. Whatever a client does, it ends with its own connection: it
may send what is no request, half of one or nothing, not read the answer, go away, or come a hundred times.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import SocketListener, SocketStream, TaskGroup, TaskStatus

from warmd.control.errors import ControlError, NoSocketError
from warmd.control.place import is_moved, is_private
from warmd.control.protocol import (
    LONGEST_ANSWER,
    LONGEST_REQUEST,
    decode_request,
    encode_error,
    encode_result,
)
from warmd.errors import WarmdError

Handler = Callable[[dict[str, Any]], Awaitable[Any]]
"""Takes the arguments of a request and returns the result, as JSON. It may take its time, and is cancelled
when the client goes away. The line of a `ControlError`, or of another `WarmdError`, is the answer."""

IDLE_SECONDS = 10.0
"""How long a client may take to send its request, and to take its answer."""
CONNECTIONS = 64
"""Connections at the same time; more wait until one ends."""
RETRY_SECONDS = 1.0
"""How long to wait when the system gives no connection, as when all file descriptors are in use."""


class ControlServer:
    """Answers requests on a unix socket that only its owner can open.

    The caller sees to it that no other daemon lives at this path: what is there is replaced.

    Args:
        path: Of the socket.
        handlers: By command.
        idle_seconds: See `IDLE_SECONDS`.
    """

    def __init__(
        self, path: Path, handlers: Mapping[str, Handler], *, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._path = path
        self._handlers = handlers
        self._idle_seconds = idle_seconds
        self._places = anyio.Semaphore(CONNECTIONS)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Answer until cancelled.

        Raises:
            NoSocketError: There can be no socket at this path.
        """
        listener = await self._listen()
        try:
            async with listener, anyio.create_task_group() as tasks:
                task_status.started()
                await self._accept(listener, tasks)
        finally:
            self._path.unlink(missing_ok=True)

    async def _listen(self) -> SocketListener:
        try:
            if is_moved(self._path):
                _make_private(self._path.parent)
            # Made where nobody else gets in and moved once nobody else can open it. The path is no longer
            # than the final one, so the system takes it.
            with tempfile.TemporaryDirectory(prefix=".", dir=self._path.parent) as folder:
                listener = await anyio.create_unix_listener(f"{folder}/s", mode=0o600)
                try:
                    os.replace(f"{folder}/s", self._path)  # noqa: PTH105 - the folder's path is text
                except OSError:
                    await listener.aclose()
                    raise
        except OSError as error:
            raise NoSocketError(f"{self._path}: {error.strerror or error}") from None
        return listener

    async def _accept(self, listener: SocketListener, tasks: TaskGroup) -> None:
        while True:
            await self._places.acquire()
            try:
                stream = await listener.accept()
            except anyio.BrokenResourceError:
                self._places.release()
                await anyio.sleep(RETRY_SECONDS)
                continue
            tasks.start_soon(self._serve, stream)

    async def _serve(self, stream: SocketStream) -> None:
        try:
            async with stream:
                line = await self._receive(stream)
                answer = await self._answer(line, stream) if line is not None else None
                if answer is not None:
                    await self._send(stream, answer)
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            # The client has gone.
            return
        finally:
            self._places.release()

    # --- one connection --------------------------------------------------------------------------

    async def _receive(self, stream: SocketStream) -> bytes | None:
        """The request's line; None when none came in time."""
        received = bytearray()
        with anyio.move_on_after(self._idle_seconds):
            while b"\n" not in received:
                if len(received) >= LONGEST_REQUEST:
                    await self._send(stream, encode_error("the request is too long"))
                    return None
                try:
                    received += await stream.receive()
                except anyio.EndOfStream:
                    return None
            return bytes(received.partition(b"\n")[0])
        return None

    async def _answer(self, line: bytes, stream: SocketStream) -> bytes | None:
        """The answer to a request; None when nobody waits for it any more."""
        try:
            request = decode_request(line)
            handler = self._handlers.get(request.command)
            if handler is None:
                raise ControlError(f"unknown command; there are {', '.join(sorted(self._handlers))}")
            return await self._carry_out(handler, request.arguments, stream)
        except WarmdError as error:
            return encode_error(str(error))
        except Exception as error:  # noqa: BLE001 - a fault in one command must not end the daemon
            # Its message could quote a prompt.
            return encode_error(f"internal error: {type(error).__name__}")

    async def _carry_out(
        self, handler: Handler, arguments: dict[str, Any], stream: SocketStream
    ) -> bytes | None:
        """Run a handler for as long as its client is there."""
        done: list[bytes] = []
        failed: list[Exception] = []

        async def handle() -> None:
            try:
                done.append(_bounded(encode_result(await handler(arguments))))
            except Exception as error:  # noqa: BLE001 - passed on, without the group that it would come in
                failed.append(error)
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(handle)
            await _until_gone(stream)
            tasks.cancel_scope.cancel()
        if failed:
            raise failed[0]
        return done[0] if done else None

    async def _send(self, stream: SocketStream, answer: bytes) -> None:
        with anyio.move_on_after(self._idle_seconds):
            await stream.send(answer)


def _bounded(answer: bytes) -> bytes:
    return answer if len(answer) <= LONGEST_ANSWER else encode_error("the answer is too long")


async def _until_gone(stream: SocketStream) -> None:
    """Return when the client hangs up; what it sends besides its request is of no interest."""
    for _ in range(LONGEST_REQUEST):
        try:
            await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError, OSError):
            return


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    if not is_private(folder):
        raise NoSocketError(f"{folder} is open to others or not ours")
