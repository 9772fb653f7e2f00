"""What a live request waits for while an entry is being warmed."""

from __future__ import annotations

import itertools
import statistics
import time
from dataclasses import dataclass, field

from tests.bench import recorded
from tests.bench.report import Result, Row, summarise
from tests.bench.rig import PREFIX_TOKENS, Setting, Texts, make_entry, make_messages, save, serve, timed_chat
from tests.serving.process import Server
from warmd.settings import Settings

USER_TOKENS = 24
LATEST = 0.75
"""The latest request is sent after this share of a warming."""

HOW = (
    f"each round sends a request of about {USER_TOKENS} tokens to the idle server, edits the first words "
    f"of the entry of about {PREFIX_TOKENS} tokens and lets it warm undisturbed, edits it again and sends a "
    "request at a point between the beginning and three quarters of the time that this took, another one "
    "each round. Rounds in which the warming had ended by then are left out. Each request has a new text and "
    "asks for one token. The server notes when each step of warming began and ended, by the clock of the "
    "client: so warming's part of a request's wait is known whatever else the machine does."
)


@dataclass(slots=True)
class _Samples:
    """Milliseconds.

    Attributes:
        idle: Of requests to an idle server.
        busy: Of those while an entry is being warmed.
        within: Of these, what steps of warming took.
        steps: Of each step.
    """

    idle: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    within: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)


def run(setting: Setting) -> Result:
    """Measure."""
    texts = Texts(setting.model)
    folder = setting.folder("interference")
    path, noted = folder / "prompts.json", folder / "steps"
    samples, numbers = _Samples(), itertools.count(1)
    entries = [make_entry("long", texts.make(PREFIX_TOKENS, 0))]
    variables = {recorded.VARIABLE: str(noted)}
    with serve(setting, path, entries, module="tests.bench.recorded", **variables) as server:
        for _ in range(3):
            _ask(server, texts, next(numbers))
        for number in range(setting.rounds):
            samples.idle.append(_ask(server, texts, next(numbers)))
            save(path, [make_entry("long", texts.make(PREFIX_TOKENS, next(numbers)))])
            undisturbed = server.wait_for("entry.warmed")
            save(path, [make_entry("long", texts.make(PREFIX_TOKENS, next(numbers)))])
            server.wait_for("entry.warming")
            time.sleep(_moment(number) * undisturbed["ms"] / 1000)
            if len(server.seen("entry.warmed")) == 2 * (number + 1):
                sent = time.perf_counter()
                samples.busy.append(_ask(server, texts, next(numbers)))
                came = time.perf_counter()
                steps = recorded.read_warming(noted)
                samples.within.append(1000 * sum(step.within(sent, came) for step in steps))
            server.wait_for("entry.warmed")
    samples.steps = [1000 * step.seconds for step in recorded.read_warming(noted)]
    return Result("interference", HOW, tuple(_rows(samples)))


def _moment(number: int) -> float:
    """Which share of a warming to let pass: evenly spread, and not at the same point of each chunk."""
    return LATEST * (0.5 + number * (5**0.5 - 1) / 2) % LATEST


def _ask(server: Server, texts: Texts, number: int) -> float:
    return timed_chat(server, make_messages(f"{number}", texts.make(USER_TOKENS, number)))[0]


def _rows(samples: _Samples) -> list[Row]:
    idle, chunk = statistics.median(samples.idle), Settings().warm.chunk_seconds * 1000
    rows = [
        summarise("request, idle", samples.idle, "ms"),
        summarise("one step of warming", samples.steps, "ms", at_most=chunk),
    ]
    if samples.busy:
        rows += [
            summarise("request while warming", samples.busy, "ms"),
            summarise("while warming / idle", [busy / idle for busy in samples.busy], "x"),
            summarise("later by", [busy - idle for busy in samples.busy], "ms"),
            summarise("warming within its wait", samples.within, "ms"),
            summarise("warming within its wait, at most", [max(samples.within)], "ms", at_most=chunk),
        ]
    return rows
