"""mlx-lm's HTTP server, with its writing to stderr turned into log records without request content."""

from __future__ import annotations

import functools
import logging
import socket
import sys
import threading
from http.server import ThreadingHTTPServer
from typing import Any

from mlx_lm import server

from warmd.errors import CannotStartError

logger = logging.getLogger("warmd.http")

KNOWN_PATHS = ("/v1/chat/completions", "/chat/completions", "/v1/completions", "/v1/models", "/health")


class PortInUseError(CannotStartError):
    """Nothing can listen on the address."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        super().__init__(f"cannot listen on {host}:{port}: {error.strerror or error}")


class RequestHandler(server.APIHandler):  # type: ignore[misc] # mlx-lm has no type information
    """mlx-lm's request handler; only its logging is ours."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log method, path and status. Anything else of a request could be content."""
        path = str(getattr(self, "path", "")).partition("?")[0]
        shown = next((known for known in KNOWN_PATHS if path.startswith(known)), "(other)")
        logger.info("%s %s %d", _known_method(self.command), shown, int(code))

    def log_error(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log that a request was malformed, without the malformed part."""
        logger.warning("malformed request")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Drop what the base class would print: both kinds of message are logged above."""


class HttpServer(ThreadingHTTPServer):
    """Listens from construction on; serves once `serve_forever` is called."""

    daemon_threads = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._active = 0
        self._idle = threading.Condition()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one connection, and count it while it lasts."""
        with self._idle:
            self._active += 1
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._idle:
                self._active -= 1
                self._idle.notify_all()

    def drain(self, timeout: float) -> bool:
        """Wait until nothing is being answered; False when `timeout` seconds were not enough."""
        with self._idle:
            return self._idle.wait_for(lambda: self._active == 0, timeout)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the type of what a handler raised. A client that hung up is not an error."""
        error = sys.exception() if sys.version_info >= (3, 12) else sys.exc_info()[1]
        if isinstance(error, ConnectionError):
            logger.info("client went away")
        else:
            logger.error("request failed with %s", type(error).__name__)


def listen(host: str, port: int) -> HttpServer:
    """Bind the address before anything slow starts; requests wait until the server serves.

    Raises:
        PortInUseError: The address cannot be bound.
    """
    if not 0 <= port <= 65535:
        raise PortInUseError(host, port, OSError("a port is a number from 0 to 65535"))
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = infos[0]

        class Server(HttpServer):
            address_family = family

        return Server(address[:2], server.APIHandler)
    except (OSError, OverflowError) as error:
        problem = error if isinstance(error, OSError) else OSError(str(error))
        raise PortInUseError(host, port, problem) from None


def attach_generator(http_server: HttpServer, generator: Any) -> None:
    """Let the server answer from a response generator."""
    fingerprint = server.get_system_fingerprint()
    # A partial, as mlx-lm's handler takes the generator before what the socket server passes.
    handler: Any = functools.partial(RequestHandler, generator, system_fingerprint=fingerprint)
    http_server.RequestHandlerClass = handler


def _known_method(command: Any) -> str:
    return command if command in ("GET", "POST", "OPTIONS", "HEAD", "PUT", "DELETE", "PATCH") else "(other)"
