"""A real HTTP server that answers as a test wants: what the servers that can be installed here do not do."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


@dataclass
class Script:
    """What the server answers, and what it was asked.

    Attributes:
        models: It lists these; None answers 404.
        status: Of an answer to a chat.
        usage: In such an answer, for each request in turn; the last one stays.
        key: What it wants as API key.
        location: Redirects every chat there.
        body: In place of every answer.
        headers: More of them.
        drips: True where answers come byte by byte.
        most: How many chats were under way at once at most.
    """

    models: list[str] | None = field(default_factory=lambda: ["small"])
    status: int = 200
    usage: list[Json] = field(default_factory=list)
    key: str | None = None
    location: str | None = None
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    drips: bool = False
    requests: list[Json] = field(default_factory=list)
    most: int = 0
    under_way: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer_models(self) -> tuple[int, Json]:
        if self.models is None:
            return 404, {}
        return 200, {"data": [{"id": name} for name in self.models]}

    def answer_chat(self, request: Json) -> tuple[int, Json]:
        with self.lock:
            self.requests.append(request)
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        usage = self.usage.pop(0) if len(self.usage) > 1 else (self.usage or [{}])[0]
        # Long enough for another one to come in, if it is sent.
        time.sleep(0.01)
        with self.lock:
            self.under_way -= 1
        return self.status, {"choices": [{}], "usage": usage}


def make_handler(script: Script) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.say(*(script.answer_models() if self.path == "/v1/models" else (404, {})))

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.say(*script.answer_chat(request))

        def say(self, status: int, body: Json) -> None:
            if script.key is not None and self.headers["Authorization"] != f"Bearer {script.key}":
                status, body = 401, {}
            self.send_response(307 if script.location else status)
            if script.location:
                self.send_header("Location", script.location)
            for name, value in script.headers.items():
                self.send_header(name, value)
            data = json.dumps(body).encode() if script.body is None else script.body
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            for part in map(bytes, zip(data)) if script.drips else [data]:
                self.wfile.write(part)
                time.sleep(0.05 if script.drips else 0)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its signature
            """Nobody reads it."""

    return Handler


class QuietServer(ThreadingHTTPServer):
    """Says nothing of clients that hang up."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that does not trust us ends the handshake."""


@contextmanager
def scripted(script: Script, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """The server, with TLS where a context is given; its address."""
    server = QuietServer(("127.0.0.1", 0), make_handler(script))
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        scheme = "http" if context is None else "https"
        yield f"{scheme}://localhost:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def usage(prompt: int, cached: int | None = None) -> Json:
    """As OpenAI's interface has it."""
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"prompt_tokens": prompt, **details}
