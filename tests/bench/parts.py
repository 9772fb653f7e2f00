"""Times the parts of one request in this process. Reads a task as JSON from stdin, prints samples as JSON."""

from __future__ import annotations

import copy
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx_lm
from mlx_lm.generate import BatchGenerator
from mlx_lm.models.cache import make_prompt_cache

from warmd.engines.mlx_lm.render import RequestPath

Samples = dict[str, list[float]]
BEHIND_PREFIX = "batch generator, tail behind the held prefix"
_STEP = 256


def main() -> None:
    """Measure and print."""
    task = json.load(sys.stdin)
    model, tokenizer = mlx_lm.load(task["model"])[:2]
    messages = task["messages"]
    tokens = _encode(tokenizer, messages)
    short = [{"role": "user", "content": messages[-1]["content"]}]
    held = _prefill(model, tokens[: task["prefix"]])
    tail = tokens[task["prefix"] :]
    parts: dict[str, Callable[[], Any]] = {
        "render and tokenise the whole prompt": lambda: _encode(tokenizer, messages),
        "render and tokenise the tail alone": lambda: _encode(tokenizer, short),
        "compute the tail behind the held prefix": lambda: _compute(model, tail, copy.deepcopy(held)),
        "compute the tail behind nothing": lambda: _compute(model, tail, make_prompt_cache(model)),
        BEHIND_PREFIX: lambda: _answer(model, tail, copy.deepcopy(held)),
        "batch generator, tail behind nothing": lambda: _answer(model, tail, None),
        "copy the held prefix": lambda: _copy(held),
    }
    print(json.dumps(_interleave(parts, task["rounds"])))


def _encode(tokenizer: Any, messages: list[dict[str, Any]]) -> list[int]:
    # A new path each time: it remembers renders, and the server does not.
    return RequestPath(tokenizer, {}).encode(copy.deepcopy(messages), None, {})


def _interleave(parts: dict[str, Callable[[], Any]], rounds: int) -> Samples:
    samples: Samples = {what: [] for what in parts}
    for number in range(rounds + 1):
        for what, run in parts.items():
            began = time.perf_counter()
            run()
            if number > 0:
                samples[what].append((time.perf_counter() - began) * 1000)
    return samples


def _prefill(model: Any, tokens: list[int]) -> list[Any]:
    cache = make_prompt_cache(model)
    for start in range(0, len(tokens), _STEP):
        model(mx.array(tokens[start : start + _STEP])[None], cache=cache)
        mx.eval([layer.state for layer in cache])
    return list(cache)


def _compute(model: Any, tokens: list[int], cache: list[Any]) -> None:
    mx.eval(model(mx.array(tokens)[None], cache=cache)[:, -1].argmax())


def _answer(model: Any, tokens: list[int], cache: list[Any] | None) -> None:
    """The first token through mlx-lm's batch generator, as its server gets it."""
    generator = BatchGenerator(model, max_tokens=1)
    generator.insert([tokens], caches=[cache or make_prompt_cache(model)])
    while not generator.next()[1]:
        pass
    generator.close()


def _copy(cache: list[Any]) -> None:
    """Write every byte anew, which is what the first write to a shared buffer costs."""
    arrays = [array for layer in cache for array in layer.state if isinstance(array, mx.array)]
    mx.eval([mx.contiguous(array + 0) for array in arrays])


if __name__ == "__main__":
    main()
