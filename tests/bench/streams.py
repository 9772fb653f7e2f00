"""Many streamed chat requests at once, each timed by its client."""

from __future__ import annotations

import http.client
import json
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.serving import process
from tests.serving.process import Json, Server


@dataclass(frozen=True, slots=True)
class Stream:
    """One streamed answer.

    Attributes:
        first: Milliseconds from sending the request to the first token's line.
        decode: Tokens a second from the first to the last one.
        tokens: Of the answer.
    """

    first: float
    decode: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Burst:
    """Requests that were sent at once.

    Attributes:
        streams: Their answers.
        seconds: From the sending of the first to the end of the last answer.
    """

    streams: Sequence[Stream]
    seconds: float

    @property
    def rate(self) -> float:
        """Tokens of all answers together, a second."""
        return sum(stream.tokens for stream in self.streams) / self.seconds

    @property
    def decode(self) -> float:
        """Tokens a second of one answer: the median."""
        return statistics.median(stream.decode for stream in self.streams)

    def first(self, share: float) -> float:
        """Milliseconds after which this share of the requests had their first token."""
        ordered = sorted(stream.first for stream in self.streams)
        return ordered[max(0, round(share * len(ordered)) - 1)]


def send(server: Server, prompts: Sequence[list[Json]], max_tokens: int, **more: Any) -> Burst:
    """Send requests at once, and wait for all answers.

    Raises:
        RuntimeError: One was not answered as it should be.
    """
    bodies = [
        {"messages": messages, "max_tokens": max_tokens, "temperature": 0, "stream": True, **more}
        for messages in prompts
    ]
    found: list[Stream | None] = [None] * len(bodies)
    start = threading.Barrier(len(bodies) + 1)

    def ask(number: int) -> None:
        start.wait()
        found[number] = _ask(server.port, bodies[number])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(bodies))]
    for thread in threads:
        thread.start()
    start.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    streams = [stream for stream in found if stream is not None]
    if len(streams) < len(bodies):
        raise RuntimeError(f"{len(bodies) - len(streams)} of {len(bodies)} requests failed")
    return Burst(streams, seconds)


def _ask(port: int, body: Json) -> Stream:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=process.PATIENCE)
    began = time.perf_counter()
    body = {**body, "stream_options": {"include_usage": True}}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(f"a request was answered with {answer.status}")
    first = last = 0.0
    tokens = 0
    # Lines that begin with a colon keep the connection alive while the prompt is computed.
    for line in answer:
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            continue
        event = json.loads(line[len(b"data: ") :])
        if event["choices"]:
            last = time.perf_counter()
            first = first or last
        if event.get("usage"):
            tokens = int(event["usage"]["completion_tokens"])
    connection.close()
    return Stream((first - began) * 1000, (tokens - 1) / max(last - first, 1e-9), tokens)
