"""Warming over HTTP."""

from __future__ import annotations

import hashlib
import json
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.engines.http.scripted import Script, scripted, usage
from tests.patience import PATIENCE
from warmd.engines.base import Reported, ServerStatus
from warmd.engines.http import ChatServer, HttpEngine
from warmd.engines.http.engine import choose_model, served
from warmd.engines.http.server import AnswerError, UnreachableError, Usage, read_usage
from warmd.errors import NotWarmableError
from warmd.events import Event
from warmd.prompts.document import Entry

RULES = "zanzibar: be careful."


def entry(*messages: dict[str, Any], **more: Any) -> Entry:
    fields: dict[str, Any] = {"tools": None, "chat_template_kwargs": {}, "priority": 0, "digest": "d", **more}
    return Entry("coder", 0, messages or ({"role": "system", "content": RULES},), **fields)


class Stage:
    """An engine that has looked at its server once."""

    def __init__(
        self, url: str, *, model: str | None = None, key: str | None = None, poll: float = 600
    ) -> None:
        self.events: list[Event] = []
        self.server = ChatServer(url, api_key=key, timeout=PATIENCE)
        self.engine = HttpEngine(self.server, model, poll_seconds=poll, emit=self._take)
        self._is_told = anyio.Event()

    def _take(self, event: Event) -> None:
        self.events.append(event)
        self._is_told.set()

    async def __aenter__(self) -> HttpEngine:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._look, tasks.cancel_scope)
            # Where nothing can be reached nothing changes, and it would look for ever.
            with anyio.fail_after(PATIENCE):
                await self._is_told.wait()
            tasks.cancel_scope.cancel()
        return self.engine

    async def _look(self, scope: anyio.CancelScope) -> None:
        await self.engine.changed()
        scope.cancel()

    async def __aexit__(self, *error: object) -> None:
        await self.server.__aexit__(None, None, None)


async def warm(engine: HttpEngine, item: Entry) -> Reported:
    return await engine.warm(await engine.render(item), lambda done: None)


async def test_an_entry_is_warmed_by_a_request_of_its_own_for_one_token() -> None:
    tool = {"type": "function", "function": {"name": "search", "parameters": {}}}
    script = Script(usage=[usage(30), usage(20), usage(120, 0)])
    item = entry(tools=(tool,), chat_template_kwargs={"enable_thinking": False})
    with scripted(script) as url:
        async with Stage(url) as engine:
            assert Reported(100, 100, 0) == await warm(engine, item)
    *shortest, request = script.requests
    assert [[message["role"] for message in each["messages"]] for each in shortest] == [
        ["user"],
        ["system", "user"],
    ]
    assert request == {
        "model": "small",
        "messages": [{"role": "system", "content": RULES}, {"role": "user", "content": "Hello."}],
        "tools": [tool],
        "chat_template_kwargs": {"enable_thinking": False},
        "max_tokens": 1,
        "temperature": 0,
        "stream": False,
    }


async def test_what_the_server_had_all_of_came_from_nowhere() -> None:
    with scripted(Script(usage=[usage(30), usage(20), usage(120, 120)])) as url:
        async with Stage(url) as engine:
            assert Reported(100, 0, 100, source=None) == await warm(engine, entry())


async def test_the_words_of_a_last_user_turn_do_not_name_the_prefix() -> None:
    def conversation(words: str) -> Entry:
        return entry({"role": "system", "content": RULES}, {"role": "user", "content": words})

    with scripted(Script()) as url:
        async with Stage(url) as engine:
            first, second = await engine.render(conversation("a")), await engine.render(conversation("b"))
            other = await engine.render(entry())
    assert first == second
    assert first.ends_in_user_turn
    assert (first.size, len(first.key)) == (None, len(hashlib.sha256().hexdigest()))
    assert first.key == other.key


async def test_a_look_up_brings_other_words_each_time() -> None:
    script = Script(usage=[usage(30), usage(20), usage(120, 0), usage(125, 105)])
    with scripted(script) as url:
        async with Stage(url) as engine:
            prefix = await engine.render(entry())
            await engine.warm(prefix, lambda done: None)
            assert [await engine.look_up(entry(), prefix) for _ in range(2)] == [100, 100]
    words = [request["messages"][-1]["content"] for request in script.requests]
    assert len(set(words[1:])) == 3


@pytest.mark.parametrize(
    ("cached", "size", "expected"),
    [
        (None, 100, None),
        (5, None, None),
        (100, 100, 100),
        (50, 100, 100),
        (49, 100, 49),
        (9800, 10_000, 10_000),
        (9700, 10_000, 9700),
        (0, 1, 0),
    ],
)
def test_a_part_of_a_block_may_be_missing(cached: int | None, size: int | None, expected: int | None) -> None:
    assert served(cached, size) == expected


async def test_a_server_that_tells_nothing_of_its_cache_is_asked_once() -> None:
    script = Script(usage=[usage(30), usage(20), usage(120)])
    with scripted(script) as url:
        async with Stage(url) as engine:
            prefix = await engine.render(entry())
            assert Reported(100, None, None) == await engine.warm(prefix, lambda done: None)
            assert [await engine.look_up(entry(), prefix) for _ in range(3)] == [None] * 3
            assert len(script.requests) == 4
            assert list(engine.held()) == [prefix.key]
            await engine.drop([prefix.key])
            assert engine.held() == {}


async def test_requests_go_one_at_a_time() -> None:
    script = Script(usage=[usage(20, 0)])
    with scripted(script) as url:
        async with Stage(url) as engine, anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(warm, engine, entry({"role": "system", "content": str(number)}))
    assert script.most == 1
    assert len(script.requests) == 10


async def test_another_model_is_another_identity_and_holds_nothing() -> None:
    script = Script(usage=[usage(20, 0)])
    with scripted(script) as url:
        async with Stage(url, poll=0.01) as engine:
            await warm(engine, entry())
            before = engine.identity
            script.models = ["large"]
            with anyio.fail_after(PATIENCE):
                await engine.changed()
            assert before is not None
            assert engine.identity is not None
            assert (before.model, engine.identity.model) == ("small", "large")
            assert before.generation < engine.identity.generation
            assert engine.held() == {}


async def test_a_server_that_goes_away_has_no_model_and_that_is_told_once() -> None:
    with scripted(Script(usage=[usage(20, 0)])) as url:
        stage = Stage(url, poll=0.01)
        engine = await stage.__aenter__()
        prefix = await engine.render(entry())
        assert engine.server() == ServerStatus(url)
    try:
        with pytest.raises(UnreachableError, match="no connection"):
            await engine.warm(prefix, lambda done: None)
        with anyio.fail_after(PATIENCE):
            await engine.changed()
        assert engine.identity is None
        with anyio.move_on_after(0.1):
            await engine.changed()
        reason = "no connection can be made with the server"
        assert [dict(event.fields) for event in stage.events] == [{"url": url, "reason": reason}]
        assert engine.server() == ServerStatus(url, reason)
    finally:
        await stage.__aexit__()


async def test_a_refusal_says_its_status_and_nothing_of_the_prompt() -> None:
    with scripted(Script(status=400)) as url:
        async with Stage(url) as engine:
            with pytest.raises(AnswerError, match=r"^the server answered 400$"):
                await warm(engine, entry())


async def test_a_redirection_is_not_followed() -> None:
    elsewhere = Script()
    with scripted(elsewhere) as other, scripted(Script(location=f"{other}/v1/chat/completions")) as url:
        async with ChatServer(url) as server:
            with pytest.raises(AnswerError, match="answered 307"):
                await server.prefill({"messages": []})
    assert elsewhere.requests == []


@pytest.mark.parametrize(("key", "is_let_in"), [(None, False), ("sk-wrong", False), ("sk-right", True)])
async def test_a_key_is_sent(key: str | None, is_let_in: bool) -> None:
    with scripted(Script(key="sk-right")) as url:
        stage = Stage(url, key=key)
        async with stage as engine:
            assert (engine.identity is not None) == is_let_in
    reasons = ["the server answered 401 (is the API key right?)"]
    assert [event.fields["reason"] for event in stage.events] == ([] if is_let_in else reasons)


@pytest.fixture
def self_signed(tmp_path: Path) -> ssl.SSLContext:
    """What a server needs whose certificate nobody vouches for."""
    line = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout key.pem -out cert.pem"
    more = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    try:
        subprocess.run([*line.split(), *more], cwd=tmp_path, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    return context


async def test_a_certificate_that_nobody_vouches_for_is_refused(self_signed: ssl.SSLContext) -> None:
    script = Script()
    with scripted(script, self_signed) as url:
        stage = Stage(url)
        async with stage as engine:
            assert engine.identity is None
    assert "certificate cannot be verified" in stage.events[0].fields["reason"]
    assert script.requests == []


def test_of_several_models_one_has_to_be_named() -> None:
    assert choose_model(["a"], None) == ("a", None)
    assert choose_model(["a", "b:latest"], "b") == ("b", None)
    assert choose_model([], None) == ("", "the server has no model")
    assert choose_model(["b", "a"], None) == (
        "",
        "the server has several models: name one with --model (a, b)",
    )
    assert choose_model(["a"], "c") == ("c", "the server does not have this model, but a")


async def test_a_server_that_cannot_list_its_models_is_used_with_a_named_one() -> None:
    with scripted(Script(models=None)) as url:
        async with Stage(url, model="small") as engine:
            assert engine.identity is not None
            assert (engine.identity.model, engine.identity.unwarmable) == ("small", None)
        stage = Stage(url)
        async with stage as engine:
            assert engine.identity is None
    assert stage.events[0].fields["reason"] == "the server answered 404 (is the path right?)"


async def test_what_was_wrong_with_such_a_server_is_over_once_it_is_used() -> None:
    script = Script(models=None, key="sk")
    with scripted(script) as url:
        async with Stage(url, model="small", poll=0.01) as engine:
            assert engine.server() == ServerStatus(url, "the server answered 401 (is the API key right?)")
            script.key = None
            with anyio.fail_after(PATIENCE):
                await engine.changed()
            assert engine.server() == ServerStatus(url)


async def test_a_model_that_cannot_be_used_is_what_is_wrong_with_a_server() -> None:
    with scripted(Script(models=["a", "b"])) as url:
        async with Stage(url) as engine:
            problem = "the server has several models: name one with --model (a, b)"
            assert engine.server() == ServerStatus(url, problem)


async def test_a_list_of_models_that_cannot_be_read_says_what_to_do() -> None:
    class Empty(Script):
        def answer_models(self) -> tuple[int, dict[str, Any]]:
            return 200, {}

    with scripted(Empty()) as url:
        stage = Stage(url)
        async with stage as engine:
            assert engine.identity is None
    reason = stage.events[0].fields["reason"]
    assert reason.endswith("as the list of its models (/models); without that list, --model names the model")


@pytest.mark.parametrize("answer", [None, [], {}, {"choices": None}, {"error": {"message": RULES}}])
def test_what_is_no_completion_is_an_error_that_quotes_nothing(answer: Any) -> None:
    with pytest.raises(AnswerError, match=r"^the server answered with something that cannot be read$"):
        read_usage(answer)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({}, Usage(None, None)),
        ({"usage": None}, Usage(None, None)),
        ({"usage": {"prompt_tokens": 9, "prompt_tokens_details": None}}, Usage(9, None)),
        (
            {"usage": {"prompt_tokens": True, "prompt_tokens_details": {"cached_tokens": "7"}}},
            Usage(None, None),
        ),
        ({"usage": {"prompt_tokens": 9}, "timings": {"cache_n": 7}}, Usage(9, 7)),
    ],
)
def test_a_usage_is_read_as_far_as_it_is_there(answer: dict[str, Any], expected: Usage) -> None:
    assert read_usage({"choices": [], **answer}) == expected


async def test_there_has_to_be_text_before_the_users() -> None:
    with scripted(Script()) as url:
        async with Stage(url) as engine:
            with pytest.raises(NotWarmableError, match="image"):
                await engine.render(entry(has_images=True))
            with pytest.raises(NotWarmableError, match="nothing precedes"):
                await engine.render(entry({"role": "user", "content": "x"}))


def test_it_needs_no_mlx() -> None:
    script = "import sys, json; import warmd.sidecar; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"mlx", "mlx_lm", "transformers"}.isdisjoint(json.loads(done.stdout))
