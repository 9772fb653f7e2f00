"""One model on two processes: what warmth saves there, and what warmd's agreements cost."""

from __future__ import annotations

import json
import sys
import time
import urllib.request

from tests.bench.report import Result, ratios, summarise
from tests.bench.rig import PREFIX_TOKENS, Setting, Texts, make_entry, make_messages, save, timed_chat
from tests.patience import PATIENCE
from tests.serving.others import running
from tests.serving.process import cached, free_port
from tests.serving.ranks import launch_two, make_shardable, on_two_ranks

ANSWER = 100
"""Tokens by which decoding is timed."""

HOW = (
    "a tiny llama, tensor parallel on two processes of this machine over mlx's ring; one entry of about "
    f"{PREFIX_TOKENS} tokens. In turns, a job of warmd and one of mlx-lm's own server: time to first token "
    "of a request of that entry (warm) and of a system prompt of the same length that begins differently "
    f"(cold), with mlx-lm's prompt cache switched off; tokens a second of an answer of {ANSWER} tokens to a "
    "short prompt, once nothing is left to be warmed."
)


def run(setting: Setting) -> Result:
    """Measure."""
    model = make_shardable(setting.folder("ranks") / "llama", "llama")
    texts, prompts = Texts(model), setting.folder("ranks") / "prompts.json"
    entry = make_entry("long", texts.make(PREFIX_TOKENS, 0))
    found: dict[str, list[float]] = {name: [] for name in ("cold", "warm", "warmd", "mlx-lm")}
    save(prompts, [entry])
    for number in range(setting.rounds):
        with on_two_ranks(model, prompts, "--prompt-cache-size", "0") as server:
            prefix = int(server.wait_for("entry.warmed")["tokens"])
            for name, text in (
                ("cold", texts.make(PREFIX_TOKENS, 1)),
                ("warm", entry["messages"][0]["content"]),
            ):
                # The first request of a process pays for what is set up once.
                timed_chat(server, make_messages("Be brief.", f"first {number}"))
                elapsed, answer = timed_chat(server, make_messages(text, f"{number}?"))
                if (cached(answer) >= prefix) != (name == "warm"):
                    raise RuntimeError(f"a {name} request had {cached(answer)} tokens cached")
                found[name].append(elapsed)
            found["warmd"].append(_decode(f"http://127.0.0.1:{server.port}"))
        port = free_port()
        plain = [*launch_two(), sys.executable, "-m", "mlx_lm", "server", "--model", str(model)]
        with running(
            [*plain, "--port", str(port)], port, setting.folder("plain"), **setting.environment
        ) as url:
            found["mlx-lm"].append(_decode(url))
    rows = [
        summarise("cold", found["cold"], "ms"),
        summarise("warm", found["warm"], "ms"),
        summarise("cold / warm", ratios(found["cold"], found["warm"]), "x"),
        summarise("decoding, warmd", found["warmd"], "tok/s"),
        summarise("decoding, mlx-lm", found["mlx-lm"], "tok/s"),
        summarise("decoding, warmd / mlx-lm", ratios(found["warmd"], found["mlx-lm"]), "x"),
    ]
    return Result("ranks", HOW, tuple(rows))


def _decode(url: str) -> float:
    """Tokens a second."""
    _chat(url, 5)
    began = time.perf_counter()
    tokens = _chat(url, ANSWER)
    return tokens / (time.perf_counter() - began)


def _chat(url: str, tokens: int) -> int:
    body = {"messages": make_messages("Be brief.", "hello"), "max_tokens": tokens, "temperature": 0}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        return int(json.load(response)["usage"]["completion_tokens"])
