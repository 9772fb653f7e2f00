"""What matching a live request against the warm entries, and accounting for it, costs that request."""

from __future__ import annotations

import functools
import io
import json
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from mlx_lm.models.cache import LRUPromptCache

from tests.bench.planning import OWN, SHARED, fill, make_prefixes
from tests.bench.report import Result, Row, summarise
from tests.bench.rig import Setting
from tests.engines.mlx_lm.warming import ids
from warmd.engines.base import LiveRequest, Prefix
from warmd.engines.mlx_lm.generator import take_chat
from warmd.engines.mlx_lm.prompt_cache import WarmPromptCache
from warmd.engines.mlx_lm.store import WarmStore
from warmd.ledger import Slot
from warmd.logs import Log
from warmd.prompts.document import Entry
from warmd.tell import Teller
from warmd.traffic import Traffic
from warmd.web.recent import Recent

ENTRIES, REQUEST = 500, 8000
LIMIT_MS = 1.0
MESSAGES, TOOLS = 40, 20
MORE_ROUNDS = 5

HOW = (
    f"{ENTRIES} held entries of {SHARED + OWN:,} tokens that share the first {SHARED:,} (tiny caches that "
    f"nothing was computed for), requests of {REQUEST:,} tokens. Engine: what its thread does for a request "
    f"beyond mlx-lm's server, which is to keep what the client sent ({MESSAGES} messages and {TOOLS} tools), "
    "and the prompt cache's look-up, less mlx-lm's own look-up and the making of the lazy copy. Daemon: "
    "counting it, its near misses and what is worth declaring, and writing the log line, to memory. The rest "
    "of each request is new."
)


def run(setting: Setting) -> Result:
    """Measure."""
    bench = _Bench()
    rounds = MORE_ROUNDS * setting.rounds
    rows: list[Row] = []
    for what, make in bench.kinds().items():
        found = [bench.measure(make(number)) for number in range(rounds)]
        engine, daemon = [one for one, _ in found], [other for _, other in found]
        rows += [
            summarise(f"{what}: engine", engine, "ms"),
            summarise(f"{what}: daemon", daemon, "ms"),
            summarise(f"{what}: both", [sum(each) for each in found], "ms", at_most=LIMIT_MS),
        ]
    return Result("matching", HOW, tuple(rows))


class _Bench:
    def __init__(self) -> None:
        self._prefixes = make_prefixes(ENTRIES)
        self._store = WarmStore()
        fill(self._store, self._prefixes)
        self._requests: list[LiveRequest] = []
        self._cache = WarmPromptCache(self._store, 10, self._requests.append)
        self._plain = LRUPromptCache(10)
        self._traffic = Traffic(Teller(Recent(Log(io.StringIO()))))
        self._traffic.follow({prefix.key: _slot(prefix, i) for i, prefix in enumerate(self._prefixes)})

    def kinds(self) -> Mapping[str, Callable[[int], list[int]]]:
        """Requests by what they have in common with the entries."""
        return {
            "a whole entry": lambda number: self._request(number, SHARED + OWN),
            "half of its own tokens": lambda number: self._request(number, SHARED + OWN // 2),
            "what all share": lambda number: self._request(number, SHARED),
            "nothing": lambda number: self._request(number, 0),
        }

    def _request(self, number: int, begins: int) -> list[int]:
        whole = list(self._prefixes[number % ENTRIES].tokens)
        return [*whole[:begins], 5, *ids(REQUEST, 1000 + number)][:REQUEST]

    def measure(self, tokens: list[int]) -> tuple[float, float]:
        """Milliseconds on the engine's thread and in the daemon."""
        chat = _milliseconds(functools.partial(take_chat, *_chat()))
        look_up = _milliseconds(lambda: self._cache.fetch_nearest_cache(None, tokens))
        plain = _milliseconds(lambda: self._plain.fetch_nearest_cache(None, tokens))
        found = self._store.match(tokens)
        copy = _milliseconds(lambda: found.copy(len(tokens) - found.length)) if found is not None else 0.0
        request = self._requests.pop()
        return chat + look_up - plain - copy, _milliseconds(lambda: self._traffic.request(request))


def _slot(prefix: Prefix, number: int) -> Slot:
    entry = Entry(f"#{number}", number, ({"role": "system"},), None, {}, 0, prefix.key)
    return Slot(entry, prefix, (entry.name,), "warm")


def _chat() -> tuple[Any, Any]:
    """A request as mlx-lm's server has it, and its arguments."""
    text = "What does this do, and is it right? " * 20
    calls = [{"id": "1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}]
    messages: list[Any] = [{"role": "system", "content": text * 20}]
    for _ in range(MESSAGES // 4):
        messages += [
            {"role": "user", "content": [{"type": "text", "text": text}]},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "1", "content": text},
            {"role": "assistant", "content": text},
        ]
    properties = {f"argument {i}": {"type": "string", "description": text} for i in range(5)}
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    tool = {"name": "read", "description": text, "parameters": parameters}
    tools = [{"type": "function", "function": {**tool}} for _ in range(TOOLS)]
    # As parsed: no two parts of it are the same object.
    body = json.loads(json.dumps({"messages": messages, "tools": tools}))
    return SimpleNamespace(**body), SimpleNamespace(chat_template_kwargs=None)


def _milliseconds(function: Callable[[], Any]) -> float:
    began = time.perf_counter()
    function()
    return (time.perf_counter() - began) * 1000
