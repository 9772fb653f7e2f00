"""vllm-mlx's request path, from messages to token ids, through a private copy of an engine's tokenizer."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from vllm_mlx import server
from vllm_mlx.engine.batched import BatchedEngine, convert_tools_for_template
from vllm_mlx.engine.chat_template_safety import build_system_prompt_cache_prefix
from vllm_mlx.engine.simple import SimpleEngine

from warmd.engines.templates import ConnectedTemplates
from warmd.errors import NotWarmableError
from warmd.prefix import vocabulary_by_id
from warmd.prompts.document import Message

Tools = list[dict[str, Any]] | None


class RequestPath:
    """Renders as a running engine renders a chat request. Satisfies `warmd.prefix.Renderer`.

    vllm-mlx's own methods are called on a stand-in that has what they look at, and the copied tokenizer:
    a fast tokenizer that two threads share can return truncated results (huggingface/transformers#47085).

    Args:
        engine: vllm-mlx's, of text, and started.

    Attributes:
        clock: The one that the chat template asks.

    Raises:
        NotWarmableError: The tokenizer cannot render a conversation.
    """

    def __init__(self, engine: Any) -> None:
        if not hasattr(engine.tokenizer, "apply_chat_template"):
            raise NotWarmableError("the model's tokenizer has no chat template")
        self._tokenizer = copy.deepcopy(engine.tokenizer)
        self._is_simple = isinstance(engine, SimpleEngine)
        self._engine = SimpleNamespace(
            is_mllm=False,
            preserve_native_tool_format=engine.preserve_native_tool_format,
            use_harmony_rendering=getattr(engine, "use_harmony_rendering", False),
            tokenizer=self._tokenizer,
            _is_mllm=False,
            _processor=None,
            _model=SimpleNamespace(tokenizer=self._tokenizer),
            _model_name=engine.model_name,
        )
        template = getattr(self._tokenizer, "chat_template", None)
        self.template: str = template if isinstance(template, str) else ""
        self._templates = ConnectedTemplates(self._tokenizer)
        self.clock = self._templates.clock
        self._lock = threading.Lock()

    def encode(self, messages: list[Message], tools: Tools, kwargs: dict[str, Any]) -> list[int]:
        """Token ids of a full request, as the engine counts them."""
        with self._lock:
            return self._encode(self._render(messages, tools, kwargs)[0])

    def system_prefix(self, messages: list[Message], tools: Tools, kwargs: dict[str, Any]) -> SystemPrefix:
        """What the simple engine keeps of a request: the text of its system messages, and their tokens."""
        with self._lock:
            text, template_kwargs, safe = self._render(messages, tools, kwargs)
            system = build_system_prompt_cache_prefix(
                self._tokenizer, messages, template_kwargs=template_kwargs, normalized_messages=safe
            )
            if system is None:
                return SystemPrefix("", 0)
            # The engine decides by the whole request whether a first token is to be added, for both.
            tokens, whole = self._encode(system, like=text), self._encode(text)
        is_beginning = len(tokens) < len(whole) and whole[: len(tokens)] == tokens
        return SystemPrefix(system, len(tokens) if is_beginning else 0)

    def chat(self, messages: list[Message], tools: Tools, kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments with which the server calls an engine's `stream_chat`, those of sampling left out."""
        prepared = server._prepare_chat_completion_invocation(
            self._engine,
            server.ChatCompletionRequest(
                model="", messages=messages, tools=tools, chat_template_kwargs=kwargs or None
            ),
            1,
        )
        taken = ("tools", "chat_template_kwargs", "enable_thinking")
        chosen = {name: prepared.chat_kwargs[name] for name in taken if name in prepared.chat_kwargs}
        return {"messages": prepared.messages, **chosen}

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some token ids, special tokens included."""
        with self._lock:
            return str(self._tokenizer.decode(list(tokens), skip_special_tokens=False))

    def vocabulary(self) -> Sequence[str]:
        """Raw token strings by id."""
        return vocabulary_by_id(self._tokenizer.get_vocab())

    def _render(
        self, messages: list[Message], tools: Tools, kwargs: dict[str, Any]
    ) -> tuple[str, dict[str, Any], Any]:
        self._templates.renew()
        call = self.chat(messages, tools, kwargs)
        template_tools = convert_tools_for_template(call["tools"]) if call.get("tools") else None
        # As `stream_chat` does before it renders.
        arguments = dict(call.get("chat_template_kwargs") or {})
        thinking = call.get("enable_thinking")
        if self._is_simple:
            text, template_kwargs, safe = SimpleEngine._render_chat_prompt(
                self._engine, call["messages"], template_tools, arguments, thinking
            )
            return text, template_kwargs or {}, safe
        text = BatchedEngine._apply_chat_template(
            self._engine,
            call["messages"],
            template_tools,
            chat_template_kwargs=arguments,
            enable_thinking=thinking,
        )
        return text, {}, None

    def _encode(self, text: str, *, like: str | None = None) -> list[int]:
        if not self._is_simple:
            return list(self._tokenizer.encode(text))
        first = self._tokenizer.bos_token
        is_bare = first is None or not (text if like is None else like).startswith(first)
        return list(self._tokenizer.encode(text, add_special_tokens=is_bare))


class SystemPrefix:
    """What the simple engine keys its cache by.

    Args:
        text: Of the system messages; prompt text, never to be logged.
        tokens: How many tokens of a request it is; 0 where the engine would not use its cache.
    """

    __slots__ = ("text", "tokens")

    def __init__(self, text: str, tokens: int) -> None:
        self.text = text
        self.tokens = tokens
