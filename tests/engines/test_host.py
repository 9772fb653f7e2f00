"""The engine for async hosts, over a small host with a real tokenizer and a toy prefix cache."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.patience import PATIENCE
from tests.toys import CHATML, make_tokenizer
from warmd.engines.base import Held, Identity, Warmed
from warmd.engines.host import HostEngine, UnfinishedStreamError
from warmd.engines.host_text import HostText
from warmd.errors import NotWarmableError, RenderError
from warmd.prompts.document import Entry
from warmd.radix import common_length

pytestmark = pytest.mark.anyio

SYSTEM = {"role": "system", "content": "You review code with care."}


def make_entry(*messages: dict[str, Any], **changes: Any) -> Entry:
    values: dict[str, Any] = {
        "name": "one",
        "index": 0,
        "messages": messages or (SYSTEM,),
        "tools": None,
        "chat_template_kwargs": {},
        "priority": 0,
        "digest": "one",
    }
    return Entry(**(values | changes))


@dataclass
class Output:
    finished: bool
    prompt_tokens: int | None
    cached_tokens: int | None


@dataclass
class SilentOutput:
    finished: bool
    prompt_tokens: int | None = None


@dataclass
class Host:
    """Serves the longest stored sequence that a prompt begins with, and stores each prompt."""

    tokenizer: Any = field(default_factory=make_tokenizer)
    model_name: str = "toy"
    stored: list[list[int]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    can_store: bool = True

    async def stream_generate(self, *, prompt: str, **options: Any) -> AsyncIterator[object]:
        self.texts.append(prompt)
        self.calls.append(options)
        tokens = self.tokenizer.encode(prompt, add_special_tokens=False)
        lengths = [common_length(other, tokens) for other in self.stored]
        whole = [n for n, other in zip(lengths, self.stored, strict=True) if n == len(other)]
        await anyio.lowlevel.checkpoint()
        yield Output(False, None, None)
        if self.can_store:
            self.stored.append(tokens)
        yield Output(True, len(tokens), max(whole, default=0))


class QuietHost(Host):
    async def stream_generate(self, *, prompt: str, **options: Any) -> AsyncIterator[object]:
        yield SilentOutput(True)


class UnfinishedHost(Host):
    async def stream_generate(self, *, prompt: str, **options: Any) -> AsyncIterator[object]:
        yield SilentOutput(False)


async def warm(engine: HostEngine, entry: Entry) -> Warmed:
    return await engine.warm(await engine.render(entry), lambda done: None)


def request_ids(host: Host, text: str) -> list[int]:
    messages = [SYSTEM, {"role": "user", "content": text}]
    rendered = host.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return list(host.tokenizer.encode(rendered, add_special_tokens=False))


@pytest.mark.parametrize("user_text", ["hello", "\n\nhello", " hi", "12", "", "你好"])
async def test_a_prefix_is_what_every_request_begins_with(user_text: str) -> None:
    host = Host()
    prefix = await HostEngine(host).render(make_entry())
    assert list(prefix.tokens) == request_ids(host, user_text)[: len(prefix)]


async def test_the_host_gets_a_text_that_encodes_to_the_prefix() -> None:
    host, done = Host(), list[int]()
    engine = HostEngine(host)
    prefix = await engine.render(make_entry())
    size = len(prefix)
    assert Warmed(size, size, 0, None) == await engine.warm(prefix, done.append)
    assert [list(prefix.tokens)] == host.stored
    assert host.calls == [{"max_tokens": 1, "temperature": 0.0}]
    assert ([size], {prefix.key: Held(None)}) == (done, engine.held())


async def test_what_the_host_had_cached_is_reported_as_reused() -> None:
    host = Host()
    engine = HostEngine(host)
    size = (await warm(engine, make_entry())).tokens
    assert Warmed(size, 0, size, None, None) == await warm(engine, make_entry())


async def test_a_look_up_finds_the_prefix_for_another_users_text() -> None:
    engine = HostEngine(Host())
    prefix = await engine.render(make_entry())
    await engine.warm(prefix, lambda done: None)
    assert [len(prefix)] * 2 == [await engine.look_up(make_entry(), prefix) for _ in range(2)]


async def test_a_look_up_finds_nothing_where_nothing_was_stored() -> None:
    engine = HostEngine(Host(can_store=False))
    prefix = await engine.render(make_entry())
    await engine.warm(prefix, lambda done: None)
    assert await engine.look_up(make_entry(), prefix) == 0


async def test_a_host_that_does_not_tell_has_no_look_up() -> None:
    engine = HostEngine(QuietHost())
    prefix = await engine.render(make_entry())
    size = len(prefix)
    assert Warmed(size, size, 0, None) == await engine.warm(prefix, lambda done: None)
    assert await engine.look_up(make_entry(), prefix) is None


async def test_a_stream_that_never_finishes_is_an_error() -> None:
    engine = HostEngine(UnfinishedHost())
    with pytest.raises(UnfinishedStreamError):
        await warm(engine, make_entry())
    assert engine.held() == {}


async def test_a_tokenizer_without_a_template_cannot_be_warmed() -> None:
    with pytest.raises(NotWarmableError, match="no chat template"):
        await HostEngine(Host(tokenizer=object())).render(make_entry())


async def test_a_template_error_is_a_render_error() -> None:
    host = Host(tokenizer=make_tokenizer(template="{{ raise_exception('no system turn') }}"))
    with pytest.raises(RenderError, match="no system turn"):
        await HostEngine(host).render(make_entry())


async def test_dropping_forgets() -> None:
    engine = HostEngine(Host())
    await warm(engine, make_entry())
    await engine.drop([*engine.held(), "unknown"])
    assert engine.held() == {}


async def test_another_tokenizer_is_another_model() -> None:
    host = Host()
    engine = HostEngine(host, poll_seconds=0.001)
    await warm(engine, make_entry())
    host.tokenizer, host.model_name = make_tokenizer(template="{# new #}" + CHATML), "other"
    with anyio.fail_after(PATIENCE):
        await engine.changed()
    assert (Identity("other", 2), {}) == (engine.identity, engine.held())
    assert (await warm(engine, make_entry())).new_tokens == 0


async def test_a_host_that_has_not_loaded_its_model_has_no_identity() -> None:
    assert HostEngine(Host(tokenizer=None)).identity is None


async def test_a_host_without_a_name_is_called_by_its_type() -> None:
    assert HostEngine(object()).identity == Identity("object", 1)


async def test_nothing_changes_by_itself() -> None:
    with anyio.move_on_after(0.02) as scope:
        await HostEngine(Host(), poll_seconds=0.001).changed()
    assert scope.cancelled_caught


async def test_cancelling_a_warming_holds_nothing() -> None:
    engine = HostEngine(Host())
    prefix = await engine.render(make_entry())
    with anyio.CancelScope() as scope:
        scope.cancel()
        await engine.warm(prefix, lambda done: None)
    assert engine.held() == {}


async def test_parts_and_arguments_are_rendered_as_the_host_does() -> None:
    template = (
        "{% for m in messages %}{{ m.content }}"
        "{% for c in m.tool_calls or [] %}{{ c.function.arguments.items() | list }}{% endfor %};{% endfor %}"
    )
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    calls = [{"function": {"name": "f", "arguments": text}} for text in ('{"x": 1}', "{bad", "null")]
    entry = make_entry(
        {"role": "system", "content": parts}, {"role": "assistant", "content": "", "tool_calls": calls}
    )
    text = HostText(make_tokenizer(template=template)).request(entry, "hi")
    assert text == "a\nb;[('x', 1)][('value', '{bad')][('value', None)];hi;"
    assert calls[0]["function"]["arguments"] == '{"x": 1}'


@pytest.mark.parametrize(
    ("model", "kwargs", "shown"),
    [("toy", {}, True), ("toy-Coder", {}, False), ("toy", {"enable_thinking": False}, False)],
)
async def test_thinking_follows_the_host_and_then_the_entry(
    model: str, kwargs: dict[str, Any], shown: bool
) -> None:
    template = "{{ 'thinks ' if enable_thinking else 'answers ' }}" + CHATML
    host = Host(make_tokenizer(template=template), model)
    await warm(HostEngine(host), make_entry(chat_template_kwargs=kwargs))
    assert host.texts[0].startswith("thinks " if shown else "answers ")


async def test_a_text_that_would_end_in_half_a_character_is_shortened() -> None:
    tokenizer = make_tokenizer()
    tokens = tokenizer.encode("Hello 𝄞", add_special_tokens=False)
    text, length = HostText(tokenizer).longest_text(tokens[:-1])
    assert text == tokenizer.decode(tokens[:length])
    assert length < len(tokens) - 1


async def test_tokens_that_no_text_stands_for_are_an_error() -> None:
    tokenizer = make_tokenizer()
    half = tokenizer.encode("𝄞", add_special_tokens=False)[0]
    with pytest.raises(RenderError, match="takes text only"):
        HostText(tokenizer).longest_text([half] * 12)
