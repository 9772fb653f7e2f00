"""What a live request waits for while an entry is being warmed."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from dataclasses import dataclass, field

from tests.bench.report import Result, Row, summarise
from tests.bench.rig import PREFIX_TOKENS, Setting, Texts, make_entry, make_messages, save, serve, timed_chat
from tests.serving.process import Json, Server
from warmd.config import Settings

USER_TOKENS = 24
LATEST = 0.75
"""The latest request is sent after this share of a warming."""

HOW = (
    f"each round sends a request of about {USER_TOKENS} tokens to the idle server, edits the first words "
    f"of the entry of about {PREFIX_TOKENS} tokens and lets it warm undisturbed (entry.warmed ms over the "
    "number of chunks is one chunk), edits it again and sends a request at a point between "
    "the beginning and three quarters of the warming, another one each round. "
    "Rounds in which the warming had ended by then are left "
    "out. Each request has a new text and asks for one token."
)


@dataclass(slots=True)
class _Samples:
    idle: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    chunk: list[float] = field(default_factory=list)


def run(setting: Setting) -> Result:
    """Measure."""
    texts = Texts(setting.model)
    path = setting.folder("interference") / "prompts.json"
    samples, numbers = _Samples(), itertools.count(1)
    with serve(setting, path, [make_entry("long", texts.make(PREFIX_TOKENS, 0))]) as server:
        for _ in range(3):
            _ask(server, texts, next(numbers))
        for number in range(setting.rounds):
            samples.idle.append(_ask(server, texts, next(numbers)))
            save(path, [make_entry("long", texts.make(PREFIX_TOKENS, next(numbers)))])
            undisturbed = server.wait_for("entry.warmed")
            samples.chunk.append(_chunk_milliseconds(undisturbed))
            save(path, [make_entry("long", texts.make(PREFIX_TOKENS, next(numbers)))])
            server.wait_for("entry.warming")
            time.sleep(_moment(number) * undisturbed["ms"] / 1000)
            if len(server.seen("entry.warmed")) == 2 * (number + 1):
                samples.busy.append(_ask(server, texts, next(numbers)))
            server.wait_for("entry.warmed")
    return Result("interference", HOW, tuple(_rows(samples)))


def _moment(number: int) -> float:
    """Which share of a warming to let pass: evenly spread, and not at the same point of each chunk."""
    return LATEST * (0.5 + number * (5**0.5 - 1) / 2) % LATEST


def _ask(server: Server, texts: Texts, number: int) -> float:
    return timed_chat(server, make_messages(f"{number}", texts.make(USER_TOKENS, number)))[0]


def _chunk_milliseconds(warmed: Json) -> float:
    chunks: int = math.ceil(warmed["new_tokens"] / Settings().warm.chunk_tokens)
    milliseconds: float = warmed["ms"]
    return milliseconds / chunks


def _rows(samples: _Samples) -> list[Row]:
    idle, chunk = statistics.median(samples.idle), statistics.median(samples.chunk)
    rows = [
        summarise("request, idle", samples.idle, "ms"),
        summarise("one chunk of warming", samples.chunk, "ms"),
    ]
    if samples.busy:
        rows += [
            summarise("request while warming", samples.busy, "ms"),
            summarise("while warming / idle", [busy / idle for busy in samples.busy], "x"),
            summarise(
                "more, in chunks", [(busy - idle) / chunk for busy in samples.busy], "chunks", at_most=1
            ),
        ]
    return rows
