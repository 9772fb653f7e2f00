"""mlx-lm's HTTP server, with its writing to stderr turned into log records without request content."""

from __future__ import annotations

import functools
import logging
import socket
import sys
import threading
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

from huggingface_hub import CacheNotFound, scan_cache_dir
from mlx_lm import server

from warmd.errors import CannotListenError
from warmd.web.site import PATHS, Site, is_path

logger = logging.getLogger("warmd.http")

KNOWN_PATHS = (
    "/v1/chat/completions",
    "/chat/completions",
    "/v1/completions",
    "/v1/models",
    "/health",
    *PATHS,
)


class RequestHandler(server.APIHandler):  # type: ignore[misc] # mlx-lm has no type information
    """mlx-lm's request handler, with our own read-only paths and without its logging.

    Args:
        site: Answers what is asked of our paths.
    """

    def __init__(self, *args: Any, site: Site, **more: Any) -> None:
        # The base class answers within its constructor.
        self._site = site
        super().__init__(*args, **more)

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server looks for
        """Answer from the daemon, or as mlx-lm does."""
        if is_path(self.path):
            self._answer()
        else:
            super().do_GET()

    def do_HEAD(self) -> None:  # noqa: N802 - the name that http.server looks for
        """The same without the body; mlx-lm knows no such method."""
        if is_path(self.path):
            self._answer(has_body=False)
        else:
            self.send_error(HTTPStatus.NOT_IMPLEMENTED, f"Unsupported method ({self.command!r})")

    def do_OPTIONS(self) -> None:  # noqa: N802 - the name that http.server looks for
        """Other sites' pages get permission from mlx-lm for its own paths only."""
        if is_path(self.path):
            self.send_response(HTTPStatus.NO_CONTENT)
            self.send_header("Allow", "GET, HEAD, OPTIONS")
            self.end_headers()
        else:
            super().do_OPTIONS()

    def _answer(self, *, has_body: bool = True) -> None:
        answer = self._site.answer(self.path, self.headers.get_all("Host", []))
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if has_body:
            self.wfile.write(answer.body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log method, path and status. Anything else of a request could be content."""
        path = str(getattr(self, "path", "")).partition("?")[0]
        shown = next((known for known in KNOWN_PATHS if path.startswith(known)), "(other)")
        # The page and Prometheus ask all the time.
        level = logging.DEBUG if shown in PATHS and int(code) == HTTPStatus.OK else logging.INFO
        logger.log(level, "%s %s %d", _known_method(self.command), shown, int(code))

    def log_error(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Log that a request was malformed, without the malformed part."""
        logger.warning("malformed request")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Drop what the base class would print: both kinds of message are logged above."""


def scan_models() -> Any:
    """The hub's cache on this machine, of which mlx-lm lists the `repos`; one that is not there has none.

    Without this mlx-lm fails in the midst of its answer to `/v1/models` where nothing was ever downloaded.
    """
    try:
        return scan_cache_dir()
    except CacheNotFound:
        return SimpleNamespace(repos=frozenset())


class HttpServer(ThreadingHTTPServer):
    """Listens from construction on; serves once `serve_forever` is called."""

    daemon_threads = True
    # socketserver's own is 5: more requests at once, or while a model is loaded, would be refused or wait for
    # their client's next try.
    request_queue_size = 128

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
        CannotListenError: The address cannot be bound.
    """
    if not 0 <= port <= 65535:
        raise CannotListenError(host, port, OSError("a port is a number from 0 to 65535"))
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = infos[0]

        class Server(HttpServer):
            address_family = family

        return Server(address[:2], server.APIHandler)
    except (OSError, OverflowError) as error:
        problem = error if isinstance(error, OSError) else OSError(str(error))
        raise CannotListenError(host, port, problem) from None


def attach_generator(http_server: HttpServer, generator: Any, site: Site) -> None:
    """Let the server answer from a response generator, and our own paths from a site."""
    fingerprint = server.get_system_fingerprint()
    # A partial, as mlx-lm's handler takes the generator before what the socket server passes.
    handler: Any = functools.partial(RequestHandler, generator, system_fingerprint=fingerprint, site=site)
    http_server.RequestHandlerClass = handler


def _known_method(command: Any) -> str:
    return command if command in ("GET", "POST", "OPTIONS", "HEAD", "PUT", "DELETE", "PATCH") else "(other)"
