"""Twenty requests at once while fifty entries are being warmed, beside the same without."""

from __future__ import annotations

import itertools
import json
import statistics
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests import patience
from tests.bench import recorded
from tests.bench.report import Result, Row, ratios, summarise
from tests.bench.rig import Setting, Texts, make_entry, save
from tests.bench.streams import Burst, send
from tests.serving.process import Json, Server, serving
from warmd.settings import Settings

ENTRIES, REQUESTS = 50, 20
USER_TOKENS, ANSWER_TOKENS = 64, 48
SHARES = (0.0, 0.1, 0.3)
SECONDS, LONGEST = 2.0, 512
"""Answers are longer than that, up to so many tokens, where the requests would be over in less time."""
SPREAD_SECONDS = 10.0
"""They are also spread where they take less together."""
ENTRY_SECONDS = 0.5
"""About what one entry takes to warm."""
SHORTEST, LARGEST = 200, 2000

HOW = (
    f"{REQUESTS} streamed chat requests of about {USER_TOKENS} tokens, all different, sent at the same time "
    f"to a server process; answers of {ANSWER_TOKENS} tokens, or longer (up to {LONGEST}) where they would "
    f"be over within {SECONDS:.0f} s. Each round sends them once while nothing is to be warmed and once "
    f"while {ENTRIES} entries are, in turning order, to one server for each live_share; and, at the default, "
    f"also spread over the time that they take together, if that is below {SPREAD_SECONDS:.0f} s. Rounds in "
    "which the warming was not under way from before the first request to after the last answer are left "
    "out. mlx-lm's own prompt cache is switched off. The server notes when each step of warming began and "
    "ended, by the clock of the client: so warming's part of a request's wait for its first token, and of "
    "the time from the first to the last token of all, are known whatever else the machine does. The former "
    "may be one chunk, the latter live_share."
)


def run(setting: Setting) -> Result:
    """Measure."""
    texts = Texts(setting.model)
    folder = setting.folder("busy")
    with ExitStack() as stack:
        stages = [stack.enter_context(_Stage(setting, folder, texts, share)) for share in SHARES]
        default = next(stage for stage in stages if stage.share == Settings().warm.live_share)
        for stage in stages:
            stage.prepare(setting.rounds)
        kinds = [(stage, _Samples(f"live_share {stage.share:.0%}"), False) for stage in stages]
        if default.seconds < SPREAD_SECONDS:
            kinds.append((default, _Samples(f"live_share {default.share:.0%}, spread"), True))
        for number in range(setting.rounds):
            for stage, samples, is_spread in kinds:
                stage.measure(samples, number, is_spread=is_spread)
        rows = [row for stage, samples, _ in kinds for row in _rows(samples, stage.share)]
        steps = [step.seconds * 1000 for stage in stages for step in stage.steps()]
    limit = Settings().warm.chunk_seconds * 1000
    rows.append(summarise("one step of warming", steps, "ms", at_most=limit))
    return Result("busy", HOW, tuple(rows))


@dataclass(slots=True)
class _Samples:
    """What was found in one way.

    Attributes:
        what: The way.
        without: Bursts while nothing was warmed.
        beside: Bursts of the same rounds while entries were.
        waits: Of each of their requests, milliseconds of its wait that warming took.
        shares: Of each of them, the share of the decoding that warming took, in percent.
        left_out: Rounds.
    """

    what: str
    without: list[Burst] = field(default_factory=list)
    beside: list[Burst] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    left_out: int = 0


class _Stage:
    """A server with one live_share.

    Attributes:
        share: It.
        seconds: What all requests together take when nothing is warmed.
    """

    def __init__(self, setting: Setting, folder: Path, texts: Texts, share: float) -> None:
        self.share = share
        self._setting = setting
        self._texts = texts
        self._prompts = folder / f"prompts-{share}.json"
        self._noted = folder / f"steps-{share}"
        self._numbers = itertools.count()
        self._answer = ANSWER_TOKENS
        self.seconds = 0.0
        self._entries: list[Json] = []
        self._server: Server
        self._stack = ExitStack()

    def __enter__(self) -> _Stage:
        save(self._prompts, [])
        environment = {
            **self._setting.environment,
            recorded.VARIABLE: str(self._noted),
            "WARMD_WARM_LIVE_SHARE": str(self.share),
        }
        running = serving(
            self._setting.model,
            self._prompts,
            "--prompt-cache-size",
            "0",
            environment=environment,
            module="tests.bench.recorded",
        )
        self._server = self._stack.enter_context(running)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def prepare(self, rounds: int) -> None:
        """Set up what a process sets up once, and see how quick the model is."""
        self._server.wait_for("daemon.ready")
        while (found := self._send(0.0).seconds) < SECONDS and self._answer < LONGEST:
            self._answer *= 2
        self.seconds = found
        save(self._prompts, [make_entry("first", self._texts.make(SHORTEST, 0))])
        milliseconds = self._server.wait_for("entry.warmed")["ms"]
        tokens = round(SHORTEST * ENTRY_SECONDS * 1000 / milliseconds)
        tokens = max(SHORTEST, min(tokens, LARGEST))
        self._entries = [make_entry(f"{i}", self._texts.make(tokens, i)) for i in range(ENTRIES)]
        self._empty()

    def measure(self, samples: _Samples, number: int, *, is_spread: bool) -> None:
        """One round."""
        apart = self.seconds / REQUESTS if is_spread else 0.0
        is_first = number % 2 == 1
        beside = self._send_beside(apart) if is_first else None
        without = self._send(apart)
        if not is_first:
            beside = self._send_beside(apart)
        if beside is None:
            samples.left_out += 1
            return
        samples.without.append(without)
        samples.beside.append(beside)
        steps = self.steps()
        for stream in beside.streams:
            samples.waits.append(1000 * sum(step.within(stream.sent, stream.first) for step in steps))
        first = min(stream.first for stream in beside.streams)
        taken = sum(step.within(first, beside.ended) for step in steps)
        samples.shares.append(100 * taken / (beside.ended - first))

    def steps(self) -> list[recorded.Step]:
        """Every step of warming so far."""
        return recorded.read_warming(self._noted)

    def _send(self, apart: float) -> Burst:
        prompts = [[{"role": "user", "content": self._text()}] for _ in range(REQUESTS)]
        return send(self._server, prompts, self._answer, apart=apart)

    def _text(self) -> str:
        number = next(self._numbers)
        return f"{number} {self._texts.make(USER_TOKENS, number)}"

    def _send_beside(self, apart: float) -> Burst | None:
        """The same while entries are warmed; None when they were not all the time."""
        save(self._prompts, self._entries)
        # The size of a chunk follows what was measured.
        for _ in range(2):
            self._server.wait_for("entry.warmed")
        burst = self._send(apart)
        is_under_way = not self._is_all_warm()
        self._empty()
        return burst if is_under_way else None

    def _empty(self) -> None:
        save(self._prompts, [])
        self._server.wait_for("plan.made", keep=0, warm=0)

    def _is_all_warm(self) -> bool:
        address = f"http://127.0.0.1:{self._server.port}/warmd/status"
        with urllib.request.urlopen(address, timeout=patience.PATIENCE) as answer:
            return all(entry["state"] == "warm" for entry in json.load(answer)["entries"])


def _rows(samples: _Samples, share: float) -> Iterator[Row]:
    if not samples.beside:
        yield summarise(f"{samples.what}: rounds left out", [samples.left_out], "rounds", at_most=0)
        return
    ways = {"alone": samples.without, "beside warming": samples.beside}
    for what, bursts in ways.items():
        waits = [stream.wait for burst in bursts for stream in burst.streams]
        yield summarise(f"{samples.what}: first token, {what}", waits, "ms")
    for what, bursts in ways.items():
        streams = [stream for burst in bursts for stream in burst.streams if stream.last > stream.first]
        rates = [stream.decode for stream in streams]
        yield summarise(f"{samples.what}: one answer, {what}", rates, "tokens/s")
    for what, bursts in ways.items():
        yield summarise(f"{samples.what}: all, {what}", [burst.rate for burst in bursts], "tokens/s")
    more = [_median_wait(b) - _median_wait(a) for a, b in zip(samples.without, samples.beside, strict=True)]
    yield summarise(f"{samples.what}: median first token, later by", more, "ms")
    limit = Settings().warm.chunk_seconds * 1000
    most = [max(samples.waits)]
    yield summarise(f"{samples.what}: warming within a wait, at most", most, "ms", at_most=limit)
    kept = ratios([burst.rate for burst in samples.beside], [burst.rate for burst in samples.without])
    yield summarise(f"{samples.what}: throughput lost", [100 * (1 - each) for each in kept], "%")
    name = f"{samples.what}: warming within the decoding"
    # With a share of 0 what is left is warming that goes on while the last token is on its way to its client.
    yield summarise(name, samples.shares, "%", at_most=100 * share or None)
    if samples.left_out:
        yield summarise(f"{samples.what}: rounds left out", [samples.left_out], "rounds")


def _median_wait(burst: Burst) -> float:
    return statistics.median(stream.wait for stream in burst.streams)
