"""The one-shot API keeps the contract that hosts of vllm-mlx rely on."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.toys import CHATML, make_tokenizer
from warmd.warmup import (
    build_strict_prefix_string,
    ensure_user_terminator,
    load_warmup_file,
    warm_prefix_cache,
)

SYSTEM = {"role": "system", "content": "You review code with care."}
PREFIX = "<|im_start|>system\nYou review code with care.<|im_end|>\n<|im_start|>user\n"
Messages = list[dict[str, Any]]


class TestLoad:
    def test_the_data_comes_back_unchanged(self, tmp_path: Path) -> None:
        data = [[SYSTEM, {"role": "user", "content": None, "extra": [1]}], [SYSTEM], [SYSTEM]]
        path = tmp_path / "prompts.json"
        path.write_text(json.dumps(data))
        assert load_warmup_file(str(path)) == data

    def test_a_byte_order_mark_is_no_error(self, tmp_path: Path) -> None:
        path = tmp_path / "prompts.json"
        path.write_text(json.dumps([[SYSTEM]]), encoding="utf-8-sig")
        assert load_warmup_file(str(path)) == [[SYSTEM]]

    def test_the_home_folder_is_expanded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / "prompts.json").write_text(json.dumps([[SYSTEM]]))
        assert load_warmup_file("~/prompts.json") == [[SYSTEM]]

    def test_a_missing_file_is_said_to_be_missing(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"none\.json"):
            load_warmup_file(str(tmp_path / "none.json"))

    def test_what_is_not_json_raises_as_the_json_module_does(self, tmp_path: Path) -> None:
        path = tmp_path / "prompts.json"
        path.write_text("[[")
        with pytest.raises(json.JSONDecodeError):
            load_warmup_file(str(path))

    @pytest.mark.parametrize(
        ("data", "phrase"),
        [
            ({"prompts": []}, "top-level JSON list"),
            ("text", "top-level JSON list"),
            ([], "empty"),
            ([[SYSTEM], []], "entry 1.*non-empty list of message dicts"),
            ([SYSTEM], "entry 0.*non-empty list of message dicts"),
            ([[SYSTEM], [SYSTEM, "hi"]], "entry 1 message 1.*expected dict"),
            ([[{"role": "system"}]], "entry 0 message 0.*missing 'role' or 'content'"),
            ([[SYSTEM, {"content": ""}]], "entry 0 message 1.*missing 'role' or 'content'"),
        ],
    )
    def test_a_wrong_shape_is_named(self, tmp_path: Path, data: object, phrase: str) -> None:
        path = tmp_path / "prompts.json"
        path.write_text(json.dumps(data))
        with pytest.raises(ValueError, match=phrase):
            load_warmup_file(str(path))


class TestTerminator:
    @pytest.mark.parametrize("role", ["user", "assistant"])
    def test_a_conversation_that_ends_in_a_turn_is_returned_itself(self, role: str) -> None:
        messages = [SYSTEM, {"role": role, "content": "x"}]
        assert messages is ensure_user_terminator(messages)

    @pytest.mark.parametrize("messages", [[], [SYSTEM], [SYSTEM, {"role": "tool", "content": "x"}]])
    def test_others_get_a_blank_user_turn_in_a_copy(self, messages: Messages) -> None:
        before = copy.deepcopy(messages)
        expected = [*before, {"role": "user", "content": " "}]
        assert expected == ensure_user_terminator(messages)
        assert before == messages


@dataclass
class ToyTokenizer:
    """Renders with a function of the messages and the template's own arguments."""

    render: Callable[..., object]

    def apply_chat_template(
        self, messages: Messages, *, tokenize: bool, add_generation_prompt: bool, **kwargs: object
    ) -> object:
        assert (tokenize, add_generation_prompt) == (False, True)
        return self.render(messages, **kwargs)


def joined(messages: Messages, **kwargs: object) -> str:
    return f"{kwargs}|" + "|".join(str(message["content"]) for message in messages)


def strict_only(messages: Messages) -> str:
    return joined(messages)


def failing(messages: Messages, **kwargs: object) -> str:
    raise RuntimeError("no user query found")


class TestStrictPrefix:
    def test_it_ends_where_the_users_text_begins(self) -> None:
        assert build_strict_prefix_string(make_tokenizer(), [SYSTEM]) == PREFIX

    def test_a_user_turn_at_the_end_is_replaced(self) -> None:
        messages = [SYSTEM, {"role": "user", "content": "Hello"}]
        assert build_strict_prefix_string(make_tokenizer(), messages) == PREFIX

    def test_an_earlier_user_turn_is_part_of_it(self) -> None:
        messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
        expected = (
            "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi<|im_end|>\n<|im_start|>user\n"
        )
        assert expected == build_strict_prefix_string(make_tokenizer(), messages)

    def test_it_works_where_the_template_merges_the_system_turn_into_the_users(self) -> None:
        template = "[INST] {{ messages[0].content }}\n\n{{ messages[1].content }} [/INST]"
        prefix = build_strict_prefix_string(make_tokenizer(template=template), [SYSTEM])
        assert prefix == "[INST] You review code with care.\n\n"

    @pytest.mark.parametrize("thinking", [True, False])
    def test_the_template_is_told_about_thinking(self, thinking: bool) -> None:
        template = "{{ 'thinks' if enable_thinking else 'answers' }}" + CHATML
        prefix = build_strict_prefix_string(make_tokenizer(template=template), [SYSTEM], thinking)
        assert ("thinks" if thinking else "answers") + PREFIX == prefix

    def test_a_template_that_objects_to_that_is_asked_without(self) -> None:
        prefix = build_strict_prefix_string(ToyTokenizer(strict_only), [SYSTEM])
        assert prefix == "{}|You review code with care.|"

    def test_the_messages_are_not_changed(self) -> None:
        def careless(messages: Messages, **kwargs: object) -> str:
            text = joined(messages)
            messages[0]["content"] = "spoilt"
            return text

        messages = [copy.deepcopy(SYSTEM)]
        assert build_strict_prefix_string(ToyTokenizer(careless), messages) is not None
        assert messages == [SYSTEM]

    @pytest.mark.parametrize(
        "tokenizer",
        [
            object(),
            ToyTokenizer(failing),
            ToyTokenizer(lambda messages, **_: [1, 2, 3]),
            ToyTokenizer(lambda messages, **_: "the same for whatever the user says"),
            ToyTokenizer(lambda messages, **_: "x" * (30 + ord(messages[-1]["content"]))),
            ToyTokenizer(lambda messages, **_: "fifteen letters"[:15] + messages[-1]["content"]),
        ],
        ids=["no template", "raises", "not text", "no difference", "one continues the other", "too short"],
    )
    def test_there_is_none(self, tokenizer: object) -> None:
        assert build_strict_prefix_string(tokenizer, [SYSTEM]) is None

    def test_sixteen_characters_are_enough(self) -> None:
        tokenizer = ToyTokenizer(lambda messages, **_: "sixteen letters." + messages[-1]["content"])
        assert build_strict_prefix_string(tokenizer, []) == "sixteen letters."


@dataclass
class Output:
    finished: bool
    prompt_tokens: int | None = 7


@dataclass
class ChatEngine:
    """Streams two outputs; a prompt that contains a key of `script` gets those outputs or that error."""

    script: dict[str, list[Output] | Exception] = field(default_factory=dict)
    seen: list[object] = field(default_factory=list)
    closed: int = 0
    running: int = 0
    peak: int = 0

    async def stream_chat(
        self, *, messages: Messages, max_tokens: int, temperature: float
    ) -> AsyncIterator[Output]:
        assert temperature == 0.0
        async with aclosing(self.answer(messages, max_tokens)) as outputs:
            async for output in outputs:
                yield output

    async def answer(self, prompt: object, max_tokens: int) -> AsyncGenerator[Output, None]:
        self.seen.append((prompt, max_tokens))
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            found = [answer for key, answer in self.script.items() if key in str(prompt)]
            answer = found[0] if found else [Output(False), Output(True)]
            if isinstance(answer, Exception):
                raise answer
            for output in answer:
                yield output
        finally:
            self.running -= 1


@dataclass
class TextEngine(ChatEngine):
    tokenizer: Any = field(default_factory=lambda: ToyTokenizer(joined))

    async def stream_generate(
        self, *, prompt: str, max_tokens: int, temperature: float
    ) -> AsyncIterator[Output]:
        assert temperature == 0.0
        async with aclosing(self.answer(prompt, max_tokens)) as outputs:
            async for output in outputs:
                yield output


async def warm(engine: object, *systems: str, **options: Any) -> dict[str, Any]:
    """The result without its time, which must be there."""
    prompts = [[{"role": "system", "content": text}] for text in systems]
    result = await warm_prefix_cache(engine, prompts, **options)
    assert result.pop("elapsed_ms") >= 0
    return result


def expect(mode: str, count: int = 1, skipped: int = 0, tokens: int = 7) -> dict[str, Any]:
    return {"count": count, "skipped": skipped, "total_prompt_tokens": tokens, "mode": mode}


STRICT, CHAT = "strict-prefix", "chat-fallback"
TEXT = "{'enable_thinking': True}|Be brief.|"
CONVERSATION = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " "}]


@pytest.mark.anyio
class TestWarm:
    async def test_an_engine_with_a_tokenizer_gets_the_prefix(self) -> None:
        engine = TextEngine()
        assert expect(STRICT) == await warm(engine, "Be brief.")
        assert engine.seen == [(TEXT, 1)]

    async def test_an_engine_without_gets_the_conversation(self) -> None:
        engine = ChatEngine()
        assert expect(CHAT) == await warm(engine, "Be brief.", max_tokens=3)
        assert engine.seen == [(CONVERSATION, 3)]

    async def test_a_tokenizer_of_none_is_no_tokenizer(self) -> None:
        assert expect(CHAT) == await warm(TextEngine(tokenizer=None), "Be brief.")

    async def test_a_prompt_that_has_no_prefix_is_sent_as_a_chat(self) -> None:
        engine = TextEngine(tokenizer=ToyTokenizer(failing))
        assert expect(STRICT) == await warm(engine, "Be brief.")
        assert engine.seen == [(CONVERSATION, 1)]

    async def test_a_prompt_whose_prefix_fails_is_sent_as_a_chat(self) -> None:
        engine = TextEngine({"enable_thinking": RuntimeError()})
        assert expect(STRICT) == await warm(engine, "Be brief.")
        assert engine.seen == [(TEXT, 1), (CONVERSATION, 1)]

    async def test_a_prompt_that_fails_is_skipped_and_the_others_are_not(self) -> None:
        engine = TextEngine({"bad": ValueError()})
        assert expect(STRICT, 2, 1, 14) == await warm(engine, "first one", "bad one", "third one")

    async def test_a_stream_that_never_finishes_is_skipped(self) -> None:
        engine = TextEngine({"brief": [Output(False)]})
        assert expect(STRICT, 0, 1, 0) == await warm(engine, "Be brief.")
        assert engine.seen == [(TEXT, 1)]

    async def test_a_prompt_without_a_token_count_counts_none(self) -> None:
        assert expect(STRICT, tokens=0) == await warm(
            TextEngine({"brief": [Output(True, None)]}), "Be brief."
        )

    async def test_nothing_to_warm_is_no_error(self) -> None:
        assert expect(STRICT, 0, 0, 0) == await warm(TextEngine())

    async def test_a_prompt_of_a_wrong_shape_is_skipped(self) -> None:
        result = await warm_prefix_cache(TextEngine(), [["text"]])  # type: ignore[list-item]
        assert result["skipped"] == 1

    async def test_an_engine_that_can_do_nothing_skips_all(self) -> None:
        assert expect(CHAT, 0, 2, 0) == await warm(object(), "one", "two")

    async def test_all_go_at_once(self) -> None:
        engine = TextEngine()
        await warm(engine, "first one", "second one", "third one")
        assert engine.peak == 3

    async def test_concurrency_bounds_how_many_go_at_once(self) -> None:
        engine = TextEngine()
        assert expect(STRICT, 4, 0, 28) == await warm(engine, *"abcd", concurrency=2)
        assert (engine.peak, engine.running) == (2, 0)

    async def test_cancelling_passes_through(self) -> None:
        engine = TextEngine()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await warm(engine, "Be brief.")
        assert scope.cancelled_caught
        assert engine.running == 0

    async def test_no_prompt_text_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.DEBUG):
            await warm(TextEngine({"CANARY": ValueError("cannot encode CANARY")}), "x CANARY")
        assert "prompt 0 was not warmed: ValueError" in caplog.text
        assert "CANARY" not in caplog.text


def test_it_runs_under_plain_asyncio() -> None:
    assert expect(STRICT) == asyncio.run(warm(TextEngine(), "Be brief."))


def test_the_package_offers_the_functions_that_hosts_import() -> None:
    import warmd

    assert (warmd.load_warmup_file, warmd.warm_prefix_cache) == (load_warmup_file, warm_prefix_cache)
