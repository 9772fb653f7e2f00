"""Asks the daemon something, from a command."""

from __future__ import annotations

import math
import socket
import time
from pathlib import Path
from typing import Any

from warmd.config import load_settings
from warmd.control.errors import ControlFailedError, NoDaemonError
from warmd.control.place import is_moved, is_private, socket_path, state_folder
from warmd.control.protocol import LONGEST_ANSWER, LONGEST_REQUEST, decode_answer, encode_request

ANSWER_SECONDS = 30.0
"""What the daemon gets for an answer, where a command does not say otherwise."""


def ask(command: str, /, *, timeout: float | None = ANSWER_SECONDS, **arguments: Any) -> Any:
    """Ask the daemon of the configured state folder; its result.

    Args:
        command: What to do.
        timeout: Seconds to wait for the answer; None waits for as long as the daemon lives.
        arguments: The command's.

    Raises:
        NoDaemonError: Nobody listens there.
        ControlFailedError: The daemon does not do it, and says why; or it gives no answer.
        UsageError: A setting is wrong.
    """
    return ask_at(socket_path(state_folder(load_settings().state)), command, arguments, timeout=timeout)


def ask_at(
    path: Path, command: str, arguments: dict[str, Any], *, timeout: float | None = ANSWER_SECONDS
) -> Any:
    """Ask the daemon behind one socket; see `ask`."""
    request = encode_request(command, arguments)
    if len(request) > LONGEST_REQUEST:
        raise ControlFailedError("the request is too long")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        deadline = time.monotonic() + (math.inf if timeout is None else timeout)
        connection.settimeout(timeout)
        _connect(connection, path)
        try:
            connection.sendall(request)
            line = _receive_line(connection, deadline)
        except TimeoutError:
            raise ControlFailedError(f"the daemon gave no answer within {timeout:g} s") from None
        except OSError as error:
            raise ControlFailedError(f"the daemon hung up ({error.strerror})") from None
    return decode_answer(line)


def _connect(connection: socket.socket, path: Path) -> None:
    try:
        if is_moved(path) and not is_private(path.parent):
            raise ControlFailedError(f"{path.parent} is open to others or not yours: remove it")
        connection.connect(str(path))
    except (FileNotFoundError, NotADirectoryError):
        raise NoDaemonError(path) from None
    except ConnectionRefusedError:
        # What a daemon leaves behind that was killed.
        raise NoDaemonError(path, "nobody listens") from None
    except TimeoutError:
        raise ControlFailedError("the daemon is too busy to answer") from None
    except OSError as error:
        raise NoDaemonError(path, f"{error.strerror or error}") from None


def _receive_line(connection: socket.socket, deadline: float) -> bytes:
    received = bytearray()
    while not received.endswith(b"\n"):
        _wait_until(connection, deadline)
        data = connection.recv(1 << 16)
        if not data:
            raise ControlFailedError("the daemon ended before it had answered")
        received += data
        if len(received) > LONGEST_ANSWER:
            raise ControlFailedError("the daemon's answer is too long")
    return bytes(received)


def _wait_until(connection: socket.socket, deadline: float) -> None:
    """Let the next read take what is left: a socket's own timeout is for each, and bytes may drip.

    Raises:
        TimeoutError: Nothing is left.
    """
    if deadline == math.inf:
        return
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    connection.settimeout(seconds)
