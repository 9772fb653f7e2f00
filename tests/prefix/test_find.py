"""The prefix of an entry, on toy templates and tokenizers, through mlx-lm's own request path."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tests.prefix import templates
from tests.prefix.requests import WEATHER_TOOL, ServerRenderer, assistant, make_entry, system, user
from tests.toys import CHATML, KINDS, MARKERS, make_tokenizer
from warmd.engines.base import Prefix
from warmd.errors import NotWarmableError, RenderError, VolatileError
from warmd.prefix import find_prefix, request_messages
from warmd.prompts.document import Entry, Message

REVIEWER = system("You are a careful reviewer of code.")


def renderer(template: str = CHATML, kind: str = "gpt2", **server_kwargs: Any) -> ServerRenderer:
    return ServerRenderer(make_tokenizer(kind, template), server_kwargs)


def encode(engine: ServerRenderer, entry: Entry, text: str) -> tuple[int, ...]:
    tools = copy.deepcopy(list(entry.tools)) if entry.tools else None
    return tuple(engine.encode(request_messages(entry, text), tools, dict(entry.chat_template_kwargs)))


def decode(entry: Entry, template: str = CHATML, kind: str = "gpt2") -> str:
    tokens = find_prefix(entry, renderer(template, kind)).tokens
    return str(make_tokenizer(kind, template).decode(list(tokens)))


@dataclass(frozen=True, slots=True)
class ScriptedRenderer:
    """Answers with what the function makes of the last message's text."""

    answer: Any
    template: str = ""

    def encode(self, messages: list[Message], tools: object, kwargs: object) -> Any:
        return self.answer(messages)

    def vocabulary(self) -> Sequence[str]:
        return ()


def characters(messages: list[Message]) -> list[int]:
    return [ord(character) for message in messages for character in message["content"] + "|"]


# What the request is.


def test_a_user_turn_is_appended_after_any_other_turn() -> None:
    entry = make_entry(REVIEWER, user("a"), assistant("b"))
    expected = [REVIEWER, user("a"), assistant("b"), user("hello")]
    assert expected == request_messages(entry, "hello")


def test_the_content_of_a_user_turn_at_the_end_is_replaced() -> None:
    turn = {"role": "user", "name": "ann", "content": "ignored"}
    expected = [REVIEWER, {**turn, "content": "hello"}]
    assert expected == request_messages(make_entry(REVIEWER, turn), "hello")


# Where the cut is.


def test_the_prefix_holds_the_system_turn_and_the_header_of_the_user_turn() -> None:
    expected = "<|im_start|>system\nYou are a careful reviewer of code.<|im_end|>\n<|im_start|>user"
    assert expected == decode(make_entry(REVIEWER))


def test_a_header_that_user_text_cannot_reach_is_kept_whole() -> None:
    prefix = decode(make_entry(REVIEWER), templates.LLAMA3, "llama3")
    assert prefix.endswith("<|start_header_id|>user<|end_header_id|>\n\n")


def test_a_special_token_that_swallows_whitespace_costs_the_whitespace_before_it() -> None:
    assert decode(make_entry(REVIEWER), templates.LLAMA3, "strip").endswith("<|end_header_id|>")


def test_system_text_inside_the_first_user_turn_is_kept() -> None:
    assert "careful reviewer of code." in decode(make_entry(REVIEWER), templates.GEMMA)


def test_a_user_text_that_moves_the_last_query_ends_the_prefix_before_the_turn_it_changes() -> None:
    entry = make_entry(REVIEWER, user("12?"), assistant("<think>hm</think>It's 12."))
    engine = renderer(templates.QWEN3)
    prefix = find_prefix(entry, engine)
    assert prefix.tokens == encode(engine, entry, "<tool_response>x</tool_response>")[: len(prefix)]
    assert "12?" in decode(entry, templates.QWEN3)


def test_a_prompt_that_is_another_each_time_is_volatile() -> None:
    numbers = iter(range(1000))

    def answer(messages: list[Message]) -> list[int]:
        return [1, 2, 3, 1000 + next(numbers), *characters(messages)]

    with pytest.raises(VolatileError, match=r"^the prompt changes with every request at token 3$") as caught:
        find_prefix(make_entry(REVIEWER), ScriptedRenderer(answer))
    assert caught.value.position == 3


def test_the_prefix_says_that_it_ends_in_a_user_turn() -> None:
    entry = make_entry(REVIEWER, user("ignored"))
    engine = renderer()
    assert Prefix(find_prefix(make_entry(REVIEWER), engine).tokens, True) == find_prefix(entry, engine)


def test_a_doubled_bos_of_the_engine_is_doubled_in_the_prefix() -> None:
    engine = renderer("{{ '<s><s>' }}" + CHATML)
    assert find_prefix(make_entry(REVIEWER), engine).tokens[:2] == (engine.vocabulary().index("<s>"),) * 2


# Kwargs and tools reach the render as a request's do.


@pytest.mark.parametrize("entry_kwargs", [{}, {"enable_thinking": True}, {"enable_thinking": False}])
@pytest.mark.parametrize("server_kwargs", [{}, {"enable_thinking": True}, {"enable_thinking": False}])
@pytest.mark.parametrize("can_think", [True, False])
def test_kwargs_are_merged_as_for_a_request(
    can_think: bool, server_kwargs: dict[str, Any], entry_kwargs: dict[str, Any]
) -> None:
    markers = (*MARKERS, "<think>", "</think>") if can_think else MARKERS
    tokenizer = make_tokenizer("gpt2", templates.THINKING, markers)
    entry = make_entry(REVIEWER, kwargs=entry_kwargs)
    tokens = find_prefix(entry, ServerRenderer(tokenizer, server_kwargs)).tokens
    is_on = {"enable_thinking": can_think, **server_kwargs, **entry_kwargs}["enable_thinking"]
    assert tokenizer.decode(list(tokens)).startswith("<think-on>" if is_on else "<think-off>")


def test_tools_alone_can_be_warmed() -> None:
    assert "get_weather" in decode(make_entry(user("ignored"), tools=[WEATHER_TOOL]))


def test_the_key_order_of_tools_decides_the_tokens() -> None:
    function = WEATHER_TOOL["function"]
    swapped = {**WEATHER_TOOL, "function": dict(reversed(function.items()))}
    assert swapped == WEATHER_TOOL
    engine = renderer()
    first = find_prefix(make_entry(REVIEWER, tools=[WEATHER_TOOL]), engine)
    assert first.key != find_prefix(make_entry(REVIEWER, tools=[swapped]), engine).key


def test_rendering_leaves_the_entry_as_it_was() -> None:
    call = {"type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
    messages = (
        {"role": "system", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "kind."}]},
        user("Weather?"),
        assistant(None, tool_calls=[call]),
    )
    entry = make_entry(*messages, tools=[WEATHER_TOOL], kwargs={"custom": {"a": [1]}})
    before = copy.deepcopy(entry)
    find_prefix(entry, renderer())
    assert before == entry


def test_content_parts_give_the_tokens_of_the_joined_text() -> None:
    engine = renderer()
    parts = [{"type": "text", "text": "Be "}, {"type": "text", "text": "kind."}]
    expected = find_prefix(make_entry(system("Be kind.")), engine)
    assert expected == find_prefix(make_entry({"role": "system", "content": parts}), engine)


def test_a_long_entry_costs_at_most_64_renders() -> None:
    turns = [turn for n in range(9) for turn in (user(f"Question {n}"), assistant(f"Answer {n}"))]
    engine = renderer(templates.QWEN3 + templates.MISTRAL, "spm")
    find_prefix(make_entry(REVIEWER, *turns), engine)
    assert engine.renders <= 64


# Entries that cannot be warmed.


@pytest.mark.parametrize(
    ("entry", "template", "reason"),
    [
        (make_entry(REVIEWER, has_images=True), CHATML, "image content: no text prefix can hold it"),
        (
            make_entry(user("hello")),
            CHATML,
            "nothing precedes the user text: the only message is a user turn",
        ),
        (make_entry(REVIEWER), templates.IGNORES_SYSTEM, "content not in prefix: message 0 (system)"),
        (
            make_entry(user("hello"), tools=[WEATHER_TOOL]),
            templates.IGNORES_SYSTEM,
            "content not in prefix: tools",
        ),
        (make_entry(REVIEWER), "{{ messages[-1].content + messages[0].content }}", "no token precedes"),
        (
            make_entry(REVIEWER, user("a"), {"role": "SECRET", "content": "b"}, user("c")),
            "<s>{% for m in messages if m.role != 'SECRET' %}{{ m.content }}|{% endfor %}",
            "content not in prefix: message 2 (other role)",
        ),
    ],
)
def test_an_entry_without_stable_content_is_not_warmable(entry: Entry, template: str, reason: str) -> None:
    with pytest.raises(NotWarmableError) as caught:
        find_prefix(entry, renderer(template))
    assert str(caught.value).startswith(reason)


# Entries that cannot be rendered.


@pytest.mark.parametrize(
    ("entry", "template", "message"),
    [
        (make_entry(REVIEWER), templates.REFUSES_SYSTEM, "TemplateError: System role not supported"),
        (
            make_entry(REVIEWER, user("a"), user("b")),
            templates.GEMMA,
            "TemplateError: Conversation roles must alternate user/assistant/user/assistant/...",
        ),
        (make_entry(REVIEWER), "{{ nothing.at.all }}", "UndefinedError: 'nothing' is undefined"),
        (make_entry(REVIEWER), "{{ 1 / 0 }}", "ZeroDivisionError: division by zero"),
        (
            make_entry(
                REVIEWER,
                user("a"),
                assistant(
                    "", tool_calls=[{"function": {"arguments": "{}"}}, {"function": {"arguments": "{bad"}}]
                ),
            ),
            CHATML,
            "message 2, tool call 1: arguments are not valid JSON",
        ),
    ],
)
def test_a_render_error_shows_the_template_s_own_message(entry: Entry, template: str, message: str) -> None:
    with pytest.raises(RenderError) as caught:
        find_prefix(entry, renderer(template))
    assert message == str(caught.value)
    assert type(caught.value) is RenderError


@pytest.mark.parametrize("quote", ["{{ raise_exception(%s) }}", "{{ raise_exception('Bad: ' + %s) }}"])
@pytest.mark.parametrize("form", ["text", "text | upper", "text | tojson", "text[5:16]", "tools | tojson"])
def test_a_render_error_never_shows_text_of_the_entry(form: str, quote: str) -> None:
    template = "{% set text = messages[0].content %}" + quote % form
    entry = make_entry(system("Do: CANARY-caf\u00e9-\u79d8\u5bc6 \n now"), tools=[{"name": "CANARY_tool"}])
    with pytest.raises(RenderError) as caught:
        find_prefix(entry, renderer(template))
    assert str(caught.value) == "the chat template or tokenizer raised TemplateError"
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_probes_that_the_template_refuses_are_skipped() -> None:
    refuses_empty = "{% if not messages[-1].content.strip() %}{{ raise_exception('Empty') }}{% endif %}"
    # No system turn: mlx-lm itself renders an empty user text after one.
    entry = make_entry(user("Hello"), assistant("Hi!"))
    assert find_prefix(entry, renderer(CHATML)) == find_prefix(entry, renderer(refuses_empty + CHATML))


# Shapes of what a tokenizer returns.


@pytest.mark.parametrize(
    "wrap", [lambda ids: ids, tuple, lambda ids: {"input_ids": ids}, lambda ids: {"input_ids": [ids]}]
)
def test_every_shape_of_token_ids_is_understood(wrap: Any) -> None:
    expected = find_prefix(make_entry(REVIEWER), ScriptedRenderer(characters))
    assert expected == find_prefix(make_entry(REVIEWER), ScriptedRenderer(lambda m: wrap(characters(m))))


@pytest.mark.parametrize("output", ["text", {"ids": [1]}, None, [1, "a"], [1.0], [True], [-1], [[1], [2]]])
def test_anything_else_is_a_render_error(output: object) -> None:
    with pytest.raises(RenderError, match=r"the engine's tokenizer returned"):
        find_prefix(make_entry(REVIEWER), ScriptedRenderer(lambda _: output))


def test_without_vocabulary_and_template_the_prefix_is_still_found() -> None:
    expected = tuple(map(ord, REVIEWER["content"] + "|"))
    assert expected == find_prefix(make_entry(REVIEWER), ScriptedRenderer(characters)).tokens


@pytest.mark.parametrize("kind", KINDS)
def test_the_dated_template_is_stable_within_a_day(kind: str) -> None:
    engine = renderer(templates.DATED, kind)
    entry = make_entry(REVIEWER, tools=[json.loads(json.dumps(WEATHER_TOOL))])
    assert find_prefix(entry, engine) == find_prefix(entry, engine)
