"""Entries, and a renderer that goes through mlx-lm's real request path, for the tests of prefixes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from mlx_lm.server import CompletionRequest, ResponseGenerator
from mlx_lm.tokenizer_utils import TokenizerWrapper

from warmd.prefix import vocabulary_by_id
from warmd.prompts.document import Entry, Message


class ServerRenderer:
    """Encodes as ``mlx_lm.server`` does for a live chat request; counts the renders."""

    def __init__(self, tokenizer: TokenizerWrapper, server_kwargs: dict[str, Any] | None = None) -> None:
        self._tokenizer = tokenizer
        self._owner = SimpleNamespace(
            model_provider=SimpleNamespace(
                processor=None, cli_args=SimpleNamespace(chat_template_args=server_kwargs or {})
            )
        )
        self.renders = 0

    @property
    def template(self) -> str:
        return str(self._tokenizer.chat_template or "")

    def encode(
        self, messages: list[Message], tools: list[dict[str, Any]] | None, kwargs: dict[str, Any]
    ) -> Any:
        self.renders += 1
        request = CompletionRequest("chat", "", messages, tools, None)
        arguments = SimpleNamespace(chat_template_kwargs=kwargs or None)
        return ResponseGenerator._tokenize(self._owner, self._tokenizer, request, arguments)[0]

    def vocabulary(self) -> Sequence[str]:
        return self._vocabulary

    @cached_property
    def _vocabulary(self) -> tuple[str, ...]:
        return vocabulary_by_id(self._tokenizer.get_vocab())


def make_entry(
    *messages: Message,
    tools: Sequence[dict[str, Any]] | None = None,
    kwargs: dict[str, Any] | None = None,
    has_images: bool = False,
) -> Entry:
    return Entry(
        name="#0",
        index=0,
        messages=messages,
        tools=tuple(tools) if tools is not None else None,
        chat_template_kwargs=kwargs or {},
        priority=0,
        digest="0" * 64,
        has_images=has_images,
    )


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str | None, **fields: Any) -> Message:
    return {"role": "assistant", "content": text, **fields}


WEATHER_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Name of the city."}},
            "required": ["city"],
        },
    },
}
