"""`warmd serve --engine vllm-mlx`: vllm-mlx's own server, a real model, real HTTP."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.serving.process import Json, Server, serving, text, write
from warmd.control.client import ask_at
from warmd.control.errors import ControlFailedError
from warmd.control.place import socket_path

pytestmark = pytest.mark.skipif(
    find_spec("vllm_mlx") is None, reason="vllm-mlx is not installed (it needs mlx-lm below 0.32)"
)

BATCHED = "--continuous-batching"
RULES = "You are a careful reviewer of code and name the worst problem first. " * 12
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search the code",
            "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
        },
    }
]


def system(content: str) -> Json:
    return {"role": "system", "content": content}


def user(content: str) -> Json:
    return {"role": "user", "content": content}


CODER = {"name": "coder", "messages": [system("Coder. " + RULES)]}
TOOLED = {
    "name": "tooled",
    "messages": [system("Tooled. " + RULES)],
    "tools": TOOLS,
    "chat_template_kwargs": {"enable_thinking": False},
}
SHORT = {"name": "short", "messages": [system("Be brief.")]}


@contextmanager
def warm_server(
    model: Path, folder: Path, *arguments: str, entries: list[Any], home: dict[str, str]
) -> Iterator[Server]:
    write(folder / "prompts.json", entries)
    arguments = ("--engine", "vllm-mlx", *arguments)
    with serving(model, folder / "prompts.json", *arguments, environment=home) as server:
        yield server


def ask(server: Server, model: Path | str, entry: Any, content: str, **more: Any) -> Json:
    own = {key: entry[key] for key in ("tools", "chat_template_kwargs") if key in entry}
    return server.chat([*entry["messages"], user(content)], model=str(model), **own, **more)


def status(server: Server) -> Json:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/warmd/status") as answer:
        return dict(json.load(answer))


def cache_counts(server: Server) -> Json:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/v1/cache/stats") as answer:
        return dict(json.load(answer)["engine_cache"])


def delete(server: Server, path: str) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", method="DELETE")
    urllib.request.urlopen(request).close()


@pytest.mark.parametrize("architecture", ["llama", "granitemoehybrid", "gemma3_text"])
def test_requests_begin_from_what_was_warmed_and_answer_as_cold_ones(
    architecture: str, models: dict[str, Path], tmp_path: Path, home: dict[str, str]
) -> None:
    model, texts = models[architecture], ("Hello", "\n\nWhat is 12?")
    cold = []
    arguments = (BATCHED, "--disable-prefix-cache")
    with warm_server(model, tmp_path, *arguments, entries=[CODER, TOOLED], home=home) as server:
        reason = server.wait_for("engine.unwarmable")["reason"]
        assert "leave out --disable-prefix-cache" in reason
        server.wait_for("daemon.ready")
        assert {(found["state"], found["reason"]) for found in status(server)["entries"]} == {
            ("unwarmable", reason)
        }
        # Nobody sees them, and so it is not that there were none.
        assert status(server)["live"] is None
        for entry in (CODER, TOOLED):
            cold += [text(ask(server, model, entry, content, max_tokens=12)) for content in texts]
    warm = []
    with warm_server(model, tmp_path, BATCHED, entries=[CODER, TOOLED, SHORT], home=home) as server:
        lengths = {
            name: server.wait_for("entry.warmed", entry=name)["tokens"] for name in ("coder", "tooled")
        }
        short = server.wait_for("entry.failed", entry="short")
        assert (short["state"], short["retry_in_s"]) == ("stored_not_served", None)
        assert "nothing shorter than 128 tokens" in short["reason"]
        for entry in (CODER, TOOLED):
            for content in texts:
                warm.append(text(ask(server, model, entry, content, max_tokens=12)))
                hit = server.wait_for("live.hit", entry=entry["name"])
                assert hit["cached"] >= lengths[str(entry["name"])]
        assert [entry["hits"] for entry in status(server)["entries"]] == [2, 2, 0]
        # Its own numbers are of requests: neither warming nor proofs are among them.
        counts = cache_counts(server)
        assert (counts["hits"], counts["misses"]) == (4, 0)
        assert counts["tokens_saved"] >= 2 * sum(lengths.values())
        other = {"messages": [system(f"Coder. {RULES}Or the second one.")]}
        ask(server, model, other, "Hello")
        server.wait_for("live.near_miss", entry="coder")
        (miss,) = ask_at(socket_path(server.state_folder), "explain", {"name": "coder"})["near_misses"]
        assert (miss["place"], miss["cause"]) == ("prompt", "not_seen")
        assert server.stop() == 0
        assert server.seen("daemon.stopped")[-1]["exit_code"] == 0
        assert RULES[:30] not in "".join(server.lines)
    assert warm == cold


def test_a_request_that_comes_again_is_no_hit_where_vllm_mlx_prefills_all_of_it(
    models: dict[str, Path], tmp_path: Path, home: dict[str, str]
) -> None:
    model = models["llama"]
    with warm_server(model, tmp_path, BATCHED, entries=[CODER], home=home) as server:
        size = server.wait_for("entry.warmed", entry="coder")["tokens"]
        for content in ("Hello", "Hello", "Hello", "What is 12?"):
            ask(server, model, CODER, content, max_tokens=2)
        # Its cache has all of the second and the third, and it uses none of that.
        assert [server.wait_for("live.hit")["cached"] for _ in range(2)] == [size, size]
        assert status(server)["live"] == {
            "requests": 4,
            "hits": 2,
            "tokens_saved": 2 * size,
            "near_misses": 0,
        }
        assert server.stop() == 0
        assert len(server.seen("live.hit")) == 2


def test_a_request_that_is_scheduled_twice_counts_once(
    models: dict[str, Path], tmp_path: Path, home: dict[str, str]
) -> None:
    write(tmp_path / "prompts.json", [CODER])
    arguments, module = ("--engine", "vllm-mlx", BATCHED), "tests.engines.vllm_mlx.failing_step"
    with serving(
        models["llama"], tmp_path / "prompts.json", *arguments, environment=home, module=module
    ) as server:
        server.wait_for("entry.warmed", entry="coder")
        ask(server, models["llama"], {"messages": [system("Another text.")]}, "Hello", max_tokens=2)
        # It has cleared its cache before the second try.
        server.wait_for("entry.lost", entry="coder")
        server.wait_for("entry.warmed", entry="coder")
        ask(server, models["llama"], CODER, "Hello", max_tokens=2)
        server.wait_for("live.hit", entry="coder")
        assert status(server)["live"]["requests"] == 2
        assert server.stop() == 0


def test_an_edit_costs_what_it_changes_and_what_is_cleared_comes_back(
    models: dict[str, Path], tmp_path: Path, home: dict[str, str]
) -> None:
    model = models["llama"]
    with warm_server(model, tmp_path, BATCHED, entries=[CODER], home=home) as server:
        size = server.wait_for("entry.warmed", entry="coder")["tokens"]
        edited = {**CODER, "messages": [system("Coder. " + RULES + "Answer in one line.")]}
        write(tmp_path / "prompts.json", [edited])
        again = server.wait_for("entry.warmed", entry="coder")
        assert again["tokens"] > size
        assert again["new_tokens"] < 40
        server.wait_for("entry.dropped", entry="coder")
        delete(server, "/v1/cache")
        server.wait_for("entry.lost", entry="coder")
        assert server.wait_for("entry.warmed", entry="coder")["new_tokens"] == again["tokens"]
        ask(server, model, edited, "Hello")
        assert server.wait_for("live.hit", entry="coder")["cached"] == again["tokens"]
        # It would wait for ever.
        with pytest.raises(ControlFailedError, match="only the tokens of requests are seen"):
            ask_at(socket_path(server.state_folder), "capture", {})


def test_a_model_that_comes_late_and_goes_when_idle_is_warm_each_time_it_is_there(
    models: dict[str, Path], tmp_path: Path, home: dict[str, str]
) -> None:
    model = models["llama"]
    arguments = (BATCHED, "--lazy-load-model", "--auto-unload-idle-seconds", "6")
    with warm_server(model, tmp_path, *arguments, entries=[CODER], home=home) as server:
        server.wait_for("prompts.accepted")
        assert status(server)["model"] is None
        ask(server, model, CODER, "Hello")
        server.wait_for("entry.warmed", entry="coder")
        server.wait_for("engine.model_changed", model=None)
        ask(server, model, CODER, "Hello again")
        assert server.wait_for("engine.reloaded")["model"] == str(model)
        server.wait_for("entry.warmed", entry="coder")
        assert server.stop() == 0


def test_the_simple_engine_keeps_system_prompts_warm(
    models: dict[str, Path], tmp_path: Path, home: dict[str, str]
) -> None:
    model = models["llama"]
    again = {"name": "again", "messages": [system("Coder. " + RULES + "Answer in one line.")]}
    with warm_server(model, tmp_path, entries=[CODER, again, TOOLED], home=home) as server:
        # Each is prefilled whole, also where two begin alike.
        foreseen = server.wait_for("plan.made")["new_tokens"]
        warmed = [server.wait_for("entry.warmed", entry=name) for name in ("coder", "again", "tooled")]
        assert (
            foreseen == sum(line["new_tokens"] for line in warmed) == sum(line["tokens"] for line in warmed)
        )
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/v1/cache/stats") as answer:
            before = json.load(answer)["engine_cache"]["system_kv_cache"]["counters"]
        # The cache serves streams only.
        for entry in (CODER, TOOLED):
            stream(server, model, entry)
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/v1/cache/stats") as answer:
            after = json.load(answer)["engine_cache"]["system_kv_cache"]["counters"]
        assert (after["hits"] - before["hits"], after["misses"] - before["misses"]) == (2, 0)
        delete(server, "/v1/cache")
        server.wait_for("entry.warmed", entry="coder")


def stream(server: Server, model: Path, entry: Any) -> None:
    own = {key: entry[key] for key in ("tools", "chat_template_kwargs") if key in entry}
    messages = [*entry["messages"], user("Hello")]
    body = {"model": str(model), "messages": messages, "stream": True, "max_tokens": 2, **own}
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        answer.read()


def test_of_several_models_the_one_that_is_loaded_is_warmed(
    models: dict[str, Path], tmp_path: Path, home: dict[str, str]
) -> None:
    config = tmp_path / "models.yaml"
    sources = [{"name": name, "path": str(models[name])} for name in ("llama", "gemma3_text")]
    config.write_text(json.dumps({"models": sources}))
    write(tmp_path / "prompts.json", [CODER])
    arguments = ["--engine", "vllm-mlx", "--models-config", str(config), "--memory-budget-gb", "4", BATCHED]
    server = Server([*arguments, "--prompts", str(tmp_path / "prompts.json")], environment=home)
    try:
        server.wait_for("prompts.accepted")
        ask(server, "llama", CODER, "Hello")
        server.wait_for("entry.warmed", entry="coder")
        ask(server, "llama", CODER, "Hello there")
        server.wait_for("live.hit", entry="coder")
        assert server.stop() == 0
    finally:
        server.process.kill()
        server.wait()
        for pipe in (server.process.stdout, server.process.stderr):
            assert pipe is not None
            pipe.close()
        server.state.cleanup()


def ended(*arguments: str, home: dict[str, str]) -> tuple[int, str]:
    server = Server(["--engine", "vllm-mlx", *arguments], environment=home)
    code = server.wait()
    for pipe in (server.process.stdout, server.process.stderr):
        assert pipe is not None
        pipe.close()
    server.state.cleanup()
    return code, server.lines[-1] if server.lines else ""


def test_what_is_wrong_with_the_command_line_is_one_line(
    models: dict[str, Path], tmp_path: Path, home: dict[str, str]
) -> None:
    model = str(models["llama"])
    assert ended("--model", model, "--warm-prompts", "x", home=home) == (
        2,
        "warmd: --warm-prompts: with warmd the prompts file is given as --prompts\n",
    )
    code, line = ended("--model", model, "--memory-budget-gb", "4", home=home)
    assert (code, line) == (2, "warmd: --memory-budget-gb requires --models-config\n")
    assert ended("--model", model, "--bogus", home=home) == (
        2,
        "warmd serve: error: unrecognized arguments: --bogus; see `warmd serve --help`\n",
    )
    assert ended("--model", model, "--port", "web", home=home) == (
        2,
        "warmd serve: error: argument --port: expected a whole number, found 'web'; "
        "see `warmd serve --help`\n",
    )
    needs = "serve needs --model M (a model folder or Hugging Face name), or --models-config FILE"
    assert ended(home=home) == (2, f"warmd: {needs}\n")
    code, line = ended("--model", str(tmp_path / "gone"), home=home)
    assert code == 3
    assert "no such folder" in line


def test_a_port_that_is_taken_is_told_before_the_model_is_loaded(
    models: dict[str, Path], home: dict[str, str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, line = ended("--model", str(models["llama"]), "--host", "127.0.0.1", "--port", port, home=home)
    assert code == 3
    assert f"cannot listen on 127.0.0.1:{port}" in line


def test_a_stop_in_mid_warming_ends_with_0(
    models: dict[str, Path], tmp_path: Path, home: dict[str, str]
) -> None:
    long = {"name": "long", "messages": [system("Long. " + RULES * 30)]}
    with warm_server(models["llama"], tmp_path, BATCHED, entries=[long], home=home) as server:
        server.wait_for("entry.warming", entry="long")
        assert server.stop(signal.SIGINT) == 0


def test_a_stop_does_not_wait_for_ever_for_what_vllm_mlx_writes(
    models: dict[str, Path], tmp_path: Path, home: dict[str, str]
) -> None:
    write(tmp_path / "prompts.json", [CODER])
    arguments = ("--engine", "vllm-mlx", BATCHED)
    module = "tests.engines.vllm_mlx.slow_save"
    with serving(
        models["llama"], tmp_path / "prompts.json", *arguments, environment=home, module=module
    ) as server:
        server.wait_for("entry.warmed", entry="coder")
        assert server.stop() == 0
        stopped = server.seen("daemon.stopped")
        assert [line["exit_code"] for line in stopped] == [0]
        assert stopped[0]["reason"].startswith("SIGTERM; vllm-mlx had not ended in time")


def test_an_engine_that_ends_by_itself_ends_the_process_with_1(
    models: dict[str, Path], tmp_path: Path, home: dict[str, str]
) -> None:
    write(tmp_path / "prompts.json", [CODER])
    arguments = ("--engine", "vllm-mlx", BATCHED)
    module = "tests.engines.vllm_mlx.dying"
    with serving(
        models["llama"], tmp_path / "prompts.json", *arguments, environment=home, module=module
    ) as server:
        server.wait_for("entry.warmed", entry="coder")
        with contextlib.suppress(OSError):
            # Nobody is left to answer.
            server.post("/v1/chat/completions", {"messages": [user("Hello")], "model": str(models["llama"])})
        reason = server.wait_for("engine.died")["reason"]
        assert server.wait() == 1
        assert [(line["exit_code"], line["reason"]) for line in server.seen("daemon.stopped")] == [
            (1, reason)
        ]


def test_what_is_warm_is_served_after_other_requests_have_filled_the_cache(
    models: dict[str, Path], tmp_path: Path, home: dict[str, str]
) -> None:
    model, arguments = models["llama"], (BATCHED, "--cache-memory-mb", "1")
    with warm_server(model, tmp_path, *arguments, entries=[CODER], home=home) as server:
        tokens = server.wait_for("entry.warmed", entry="coder")["tokens"]
        # Each keeps about a fifth of the cache, and begins like no other.
        for number in range(20):
            other = {"messages": [system(f"{number} is my number. {RULES}")]}
            ask(server, model, other, "Hello", max_tokens=1)
            if cache_counts(server)["evictions"] > 2:
                break
        assert cache_counts(server)["evictions"] > 2
        # This one alone leaves no room beside it.
        ask(server, model, {"messages": [system(f"Large. {RULES * 6}")]}, "Hello", max_tokens=1)
        for count in (1, 2):
            ask(server, model, CODER, "Hello" * count, max_tokens=1)
            assert server.wait_for("live.hit", entry="coder")["cached"] >= tokens
        assert server.seen("entry.lost") == []
        assert [line["new_tokens"] for line in server.seen("entry.warmed")] == [tokens]
        assert server.stop() == 0


def test_what_vllm_mlx_has_written_is_served_after_a_restart(
    models: dict[str, Path], tmp_path: Path, home: dict[str, str]
) -> None:
    model = models["llama"]
    with warm_server(model, tmp_path, BATCHED, entries=[CODER], home=home) as server:
        size = server.wait_for("entry.warmed", entry="coder")["tokens"]
        assert server.stop() == 0
    with warm_server(model, tmp_path, BATCHED, entries=[CODER], home=home) as server:
        again = server.wait_for("entry.warmed", entry="coder")
        assert (again["tokens"], again["new_tokens"], again["source"]) == (size, 0, None)
        assert server.stop() == 0
