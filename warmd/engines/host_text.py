"""A host's path from messages to text to token ids, through a private copy of its tokenizer.

Written after vllm-mlx, whose conventions a host of this kind shares: content parts are joined by newlines,
the arguments of tool calls become mappings, and ``enable_thinking`` is always passed to the template.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

from warmd.engines.templates import ConnectedTemplates
from warmd.errors import NotWarmableError, RenderError
from warmd.prefix import request_messages, token_ids, vocabulary_by_id
from warmd.prompts.document import Entry, Message

_MOST_GIVEN_UP = 8


class HostText:
    """Renders, encodes and decodes as the host does. Satisfies `warmd.prefix.Renderer`.

    Args:
        tokenizer: The host's. It is copied, because a fast tokenizer that two threads share can return
            truncated results (huggingface/transformers#47085); no two threads may use this object at once.
        thinks: The host's default for ``enable_thinking``.

    Attributes:
        clock: The one that the chat template asks.

    Raises:
        NotWarmableError: The tokenizer cannot render a conversation.
    """

    def __init__(self, tokenizer: Any, *, thinks: bool = True) -> None:
        if not hasattr(tokenizer, "apply_chat_template"):
            raise NotWarmableError("the engine's tokenizer has no chat template")
        self._tokenizer = copy.deepcopy(tokenizer)
        self._defaults = {"enable_thinking": thinks}
        template = getattr(tokenizer, "chat_template", None)
        self.template: str = template if isinstance(template, str) else ""
        self._templates = ConnectedTemplates(self._tokenizer)
        self.clock = self._templates.clock

    def render(
        self, messages: list[Message], tools: list[dict[str, Any]] | None, kwargs: dict[str, Any]
    ) -> str:
        """The text of a full request, the generation prompt included. May change `messages`."""
        self._templates.renew()
        options = self._defaults | ({"tools": tools} if tools else {}) | kwargs
        for message in messages:
            _flatten(message)
        text = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, **options
        )
        if not isinstance(text, str):
            raise RenderError(f"the engine's tokenizer rendered {type(text).__name__} instead of text")
        return text

    def encode(
        self, messages: list[Message], tools: list[dict[str, Any]] | None, kwargs: dict[str, Any]
    ) -> list[int]:
        """Token ids of a full request."""
        return self._ids(self.render(messages, tools, kwargs))

    def vocabulary(self) -> Sequence[str]:
        """Raw token strings by id, or none where the tokenizer does not tell."""
        if not hasattr(self._tokenizer, "get_vocab"):
            return ()
        return vocabulary_by_id(self._tokenizer.get_vocab())

    def request(self, entry: Entry, user_text: str) -> str:
        """The text of an entry's request."""
        tools = [copy.deepcopy(tool) for tool in entry.tools or ()]
        return self.render(request_messages(entry, user_text), tools, dict(entry.chat_template_kwargs))

    def longest_text(self, tokens: Sequence[int]) -> tuple[str, int]:
        """A text that encodes to the beginning of `tokens`, and how many of them; a few may be given up.

        A text can end in half a character, or in something that the tokenizer joins otherwise.

        Raises:
            RenderError: No beginning that is long enough survives.
        """
        for length in range(len(tokens), max(0, len(tokens) - _MOST_GIVEN_UP - 1), -1):
            text = self._tokenizer.decode(list(tokens[:length]), skip_special_tokens=False)
            if self._ids(text) == list(tokens[:length]):
                return text, length
        raise RenderError("the engine takes text only, and no text encodes to this entry's prefix")

    def _ids(self, text: str) -> list[int]:
        return token_ids(self._tokenizer.encode(text, add_special_tokens=False))


def _flatten(message: Message) -> None:
    content = message.get("content")
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict) and part.get("type") == "text"]
        message["content"] = "\n".join(part.get("text", "") for part in parts)
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        if isinstance(function.get("arguments"), str):
            function["arguments"] = _as_mapping(function["arguments"])


def _as_mapping(arguments: str) -> dict[str, Any]:
    try:
        value = json.loads(arguments)
    except ValueError:
        value = arguments
    return value if isinstance(value, dict) else {"value": value}
