"""Many streamed chat requests at once, each timed by its client."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests import patience
from tests.serving.process import Json, Server


@dataclass(frozen=True, slots=True)
class Stream:
    """One streamed answer.

    Attributes:
        sent: When the request was sent, by `time.perf_counter`.
        first: When the first token's line came.
        last: When the last one came.
        tokens: Of the answer.
    """

    sent: float
    first: float
    last: float
    tokens: int

    @property
    def wait(self) -> float:
        """Milliseconds to the first token."""
        return (self.first - self.sent) * 1000

    @property
    def decode(self) -> float:
        """Tokens a second from the first to the last one."""
        return (self.tokens - 1) / (self.last - self.first)


@dataclass(frozen=True, slots=True)
class Burst:
    """Requests that were there at the same time.

    Attributes:
        streams: Their answers.
    """

    streams: Sequence[Stream]

    @property
    def began(self) -> float:
        """When the first was sent."""
        return min(stream.sent for stream in self.streams)

    @property
    def ended(self) -> float:
        """When the last token of all came."""
        return max(stream.last for stream in self.streams)

    @property
    def seconds(self) -> float:
        """From the first to the last."""
        return self.ended - self.began

    @property
    def tokens(self) -> int:
        """Of all answers."""
        return sum(stream.tokens for stream in self.streams)

    @property
    def rate(self) -> float:
        """Tokens of all answers together, a second."""
        return self.tokens / self.seconds


def send(
    server: Server, prompts: Sequence[list[Json]], max_tokens: int, *, apart: float = 0.0, **more: Any
) -> Burst:
    """Send requests, each on a connection of its own, and wait for all answers.

    Args:
        server: Where to.
        prompts: The messages of each.
        max_tokens: Of each answer.
        apart: Seconds between two requests.
        more: Further parameters of each request.

    Raises:
        RuntimeError: One was not answered as it should be.
    """
    bodies = [
        {
            "messages": messages,
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **more,
        }
        for messages in prompts
    ]
    with ThreadPoolExecutor(len(bodies)) as pool:
        start = threading.Barrier(len(bodies))

        def ask(number: int) -> Stream:
            start.wait()
            time.sleep(number * apart)
            return _ask(server.port, bodies[number])

        return Burst(list(pool.map(ask, range(len(bodies)))))


def _ask(port: int, body: Json) -> Stream:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience.PATIENCE)
    sent = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(f"a request was answered with {answer.status}")
    lines: list[float] = []
    tokens = 0
    # Lines that begin with a colon keep the connection alive while the prompt is computed.
    for line in answer:
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            continue
        event = json.loads(line[len(b"data: ") :])
        if event["choices"]:
            lines.append(time.perf_counter())
        if event.get("usage"):
            tokens = int(event["usage"]["completion_tokens"])
    connection.close()
    return Stream(sent, lines[0], lines[-1], tokens)
