"""Time to first token: cold, warm, and of the tail alone."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.bench.parts import BEHIND_PREFIX
from tests.bench.report import Result, ratios, summarise
from tests.bench.rig import (
    PREFIX_TOKENS,
    Setting,
    Texts,
    make_entry,
    make_messages,
    serve,
    timed_chat,
    timed_completion,
)
from tests.serving.process import Json, Server, cached

USER_TOKENS = 64
TOLERANCE = 1.15
_FEW = 16
"""Tokens that requests without a common text share all the same: the template's."""

HOW = (
    f"one entry of about {PREFIX_TOKENS} tokens; each round sends, in turning order, a request of that entry "
    f"(warm), one of a system prompt of the same length that begins differently (cold), both with a new user "
    f"text of about {USER_TOKENS} tokens, and to /v1/completions the text that warm has after its prefix "
    "(tail). Each asks for one token, so the whole answer is the first token; connecting, HTTP and JSON "
    "included. mlx-lm's own prompt cache is switched off (--prompt-cache-size 0), so that nothing but the "
    "warm prefix helps. cached_tokens was checked: cold at most the template's, warm exactly the "
    "prefix, tail none. "
    "The parts are measured in a process of their own: the request path's rendering and tokenising, and the "
    "batch generator on the tail behind a held prefix and behind nothing. Attention over the prefix's "
    "positions is part of warm and not of tail: on a CPU it can outweigh the rest, which the ratio to the "
    "generator behind the held prefix leaves out."
)


@dataclass(slots=True)
class _Samples:
    cold: list[float] = field(default_factory=list)
    warm: list[float] = field(default_factory=list)
    tail: list[float] = field(default_factory=list)


class UnexpectedCacheError(Exception):
    """A request was not served from what it was meant to be served from."""

    def __init__(self, kind: str, expected: str, found: int) -> None:
        super().__init__(f"a {kind} request had {found} tokens cached, expected {expected}")


def run(setting: Setting) -> Result:
    """Measure."""
    texts = Texts(setting.model)
    system = texts.make(PREFIX_TOKENS, 0)
    path = setting.folder("ttft") / "prompts.json"
    samples = _Samples()
    with serve(setting, path, [make_entry("long", system)], flags=["--prompt-cache-size", "0"]) as server:
        prefix = int(server.seen("entry.warmed")[0]["tokens"])
        # The first request of a process pays for what is set up once.
        _chat(server, "first", make_messages(system, texts.make(USER_TOKENS, 2)), prefix, prefix)
        for number in range(setting.rounds):
            _round(server, texts, system, prefix, number, samples)
    rows = [
        summarise("cold", samples.cold, "ms"),
        summarise("warm", samples.warm, "ms"),
        summarise("tail only", samples.tail, "ms"),
        summarise("warm / tail only", ratios(samples.warm, samples.tail), "x", at_most=TOLERANCE),
        summarise("cold / warm", ratios(samples.cold, samples.warm), "x"),
    ]
    user = texts.make(USER_TOKENS, 1)
    parts = _parts(setting, make_messages(system, user), prefix)
    floor = statistics.median(parts[BEHIND_PREFIX])
    rows.append(summarise(f"warm / {BEHIND_PREFIX}", [one / floor for one in samples.warm], "x"))
    rows += [summarise(f"  part: {what}", values, "ms") for what, values in parts.items()]
    return Result("ttft", HOW, tuple(rows))


def _round(server: Server, texts: Texts, system: str, prefix: int, number: int, samples: _Samples) -> None:
    user = texts.make(USER_TOKENS, 3 + number)
    warm = make_messages(system, user)
    tail = texts.decode(texts.render(warm)[prefix:])
    cold = make_messages(texts.make(PREFIX_TOKENS, 4 + number), user)
    kinds: list[Callable[[], None]] = [
        lambda: samples.cold.append(_chat(server, "cold", cold, 0, _FEW)),
        lambda: samples.warm.append(_chat(server, "warm", warm, prefix, prefix)),
        lambda: samples.tail.append(_tail(server, tail)),
    ]
    turn = number % len(kinds)
    for measure in kinds[turn:] + kinds[:turn]:
        measure()


def _chat(server: Server, kind: str, messages: list[Json], low: int, high: int) -> float:
    elapsed, answer = timed_chat(server, messages)
    if not low <= cached(answer) <= high:
        raise UnexpectedCacheError(kind, f"{low} to {high}", cached(answer))
    return elapsed


def _tail(server: Server, text: str) -> float:
    elapsed, answer = timed_completion(server, text)
    if cached(answer) > _FEW:
        raise UnexpectedCacheError("tail", f"at most {_FEW}", cached(answer))
    return elapsed


def _parts(setting: Setting, messages: list[Json], prefix: int) -> dict[str, list[float]]:
    """Time the parts of a warm request where they can be told apart, in another process."""
    task = {"model": str(setting.model), "messages": messages, "prefix": prefix, "rounds": setting.rounds}
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.parts"],
        input=json.dumps(task),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", **setting.environment},
    )
    return dict(json.loads(done.stdout))
