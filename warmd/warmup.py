"""The one-shot API: warm a list of prompts once, with the functions that vllm-mlx's hosts already call.

It keeps that contract (a text prefix from two renders, all prompts at once) and nothing more. The daemon
finds prefixes in token space, with tools, and proves them; see `warmd.prefix` and `warmd.attach`.
"""

from __future__ import annotations

import copy
import json
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from warmd.radix import common_length

Messages = list[dict[str, Any]]

SHORTEST_PREFIX = 16
"""Characters. A shorter common beginning means that the template does something unusual."""

logger = logging.getLogger(__name__)


def load_warmup_file(path: str) -> list[Messages]:
    """Read a file of prompts to warm: a JSON list of conversations, each a list of messages.

    Args:
        path: The file; ``~`` stands for the home folder.

    Raises:
        FileNotFoundError: There is no such file.
        json.JSONDecodeError: It is not JSON.
        ValueError: It is JSON of another shape; the message says which entry and message.
    """
    data = json.loads(Path(path).expanduser().read_text(encoding="utf-8-sig"))
    if not isinstance(data, list):
        raise ValueError(f"expected a top-level JSON list, not {type(data).__name__}")
    if not data:
        raise ValueError(f"nothing to warm: the list in {path} is empty")
    for index, entry in enumerate(data):
        _check_entry(entry, f"entry {index}")
    return data


def _check_entry(entry: object, where: str) -> None:
    if not isinstance(entry, list) or not entry:
        raise ValueError(f"{where}: must be a non-empty list of message dicts")
    for index, message in enumerate(entry):
        if not isinstance(message, dict):
            raise ValueError(f"{where} message {index}: expected dict, found {type(message).__name__}")
        if not message.keys() >= {"role", "content"}:
            raise ValueError(f"{where} message {index}: missing 'role' or 'content'")


def ensure_user_terminator(messages: Messages) -> Messages:
    """Return a conversation that templates accept, which refuse one without a user's turn.

    The list itself when it ends in a user or assistant turn, else a copy with a blank user turn at the end.
    """
    if messages and messages[-1].get("role") in ("user", "assistant"):
        return messages
    return [*messages, {"role": "user", "content": " "}]


def build_strict_prefix_string(
    tokenizer: Any, messages: Messages, enable_thinking: bool = True
) -> str | None:
    """Render a conversation up to where the next user's text begins.

    A user turn at the end stands for that text, whatever it says.

    Args:
        tokenizer: Anything with the ``apply_chat_template`` of transformers' tokenizers.
        messages: The conversation's beginning; it is not changed.
        enable_thinking: Passed to the template, unless the template raises because of it.

    Returns:
        What two renders with different user texts begin with. None when the tokenizer has no chat template
        method, rendering fails or gives no text, the user text makes no difference, or there are fewer than
        `SHORTEST_PREFIX` characters.
    """
    if getattr(tokenizer, "apply_chat_template", None) is None:
        return None
    for options in ({"enable_thinking": enable_thinking}, {}):
        try:
            renders = [_render(tokenizer, messages, text, options) for text in ("A", "B")]
        except Exception:  # noqa: BLE001 - templates raise anything
            continue
        return _common_beginning(*renders)
    return None


def _render(tokenizer: Any, messages: Messages, text: str, options: dict[str, Any]) -> object:
    conversation = copy.deepcopy(messages)
    if conversation and conversation[-1].get("role") == "user":
        conversation[-1]["content"] = text
    else:
        conversation.append({"role": "user", "content": text})
    return tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True, **options)


def _common_beginning(first: object, second: object) -> str | None:
    if not isinstance(first, str) or not isinstance(second, str):
        return None
    length = common_length(first, second)
    # A render that only continues the other one never came to the user's text.
    differ = length < min(len(first), len(second))
    return first[:length] if differ and length >= SHORTEST_PREFIX else None


async def warm_prefix_cache(
    engine: Any, prompts: Sequence[Messages], *, max_tokens: int = 1, concurrency: int | None = None
) -> dict[str, Any]:
    """Send each prompt through an engine once, so that its prefix cache holds them.

    With the engine's ``tokenizer`` and ``stream_generate`` the text before the user's turn is sent. Without
    them, and for a prompt where that does not work, ``stream_chat`` gets the whole conversation. A prompt
    that fails is logged and counted, and never raises.

    Args:
        engine: Its streams are async generators of outputs with ``finished`` and ``prompt_tokens``.
        prompts: Conversations, as `load_warmup_file` returns them.
        max_tokens: Tokens to generate for each.
        concurrency: How many to warm at once; by default all.

    Returns:
        ``count`` (prompts warmed), ``skipped`` (the others), ``elapsed_ms``, ``total_prompt_tokens`` and
        ``mode``: "strict-prefix" or "chat-fallback", by what the engine offers.
    """
    tokenizer = getattr(engine, "tokenizer", None)
    is_strict = tokenizer is not None and hasattr(engine, "stream_generate")
    run = _Run(engine, tokenizer if is_strict else None, max_tokens)
    limiter = anyio.CapacityLimiter(math.inf if concurrency is None else concurrency)
    began = time.perf_counter()

    async def warm_one(index: int, messages: Messages) -> None:
        async with limiter:
            await run.warm(index, messages)

    async with anyio.create_task_group() as tasks:
        for index, messages in enumerate(prompts):
            tasks.start_soon(warm_one, index, messages)
    return {
        "count": len(run.prompt_tokens),
        "skipped": len(prompts) - len(run.prompt_tokens),
        "elapsed_ms": (time.perf_counter() - began) * 1000,
        "total_prompt_tokens": sum(run.prompt_tokens),
        "mode": "strict-prefix" if is_strict else "chat-fallback",
    }


@dataclass(slots=True)
class _Run:
    """One call of `warm_prefix_cache`; `prompt_tokens` has a number for each prompt that was warmed."""

    engine: Any
    tokenizer: Any | None
    max_tokens: int
    prompt_tokens: list[int] = field(default_factory=list)

    async def warm(self, index: int, messages: Messages) -> None:
        try:
            if not await self._try_strict(index, messages):
                chat = ensure_user_terminator(messages)
                self._note(index, await self._generate(self.engine.stream_chat, messages=chat))
        except Exception as error:  # noqa: BLE001 - one prompt must not stop the others, nor the host
            # The type alone: an engine's message may quote the prompt.
            logger.warning("prompt %d was not warmed: %s", index, type(error).__name__)

    async def _try_strict(self, index: int, messages: Messages) -> bool:
        """Warm by prefix; False when the prompt is still to be tried as a chat."""
        if self.tokenizer is None:
            return False
        try:
            prefix = build_strict_prefix_string(self.tokenizer, messages)
            if prefix is None:
                return False
            self._note(index, await self._generate(self.engine.stream_generate, prompt=prefix))
        except Exception as error:  # noqa: BLE001 - the chat is the second try
            logger.warning("prompt %d is tried as a chat after %s", index, type(error).__name__)
            return False
        return True

    async def _generate(self, stream: Any, **prompt: Any) -> int | None:
        """The prompt's tokens as the engine counts them; None when the stream never said it had finished."""
        outputs = stream(**prompt, max_tokens=self.max_tokens, temperature=0.0)
        async with _closing(outputs):
            async for output in outputs:
                if output.finished:
                    return int(output.prompt_tokens or 0)
        return None

    def _note(self, index: int, prompt_tokens: int | None) -> None:
        if prompt_tokens is None:
            logger.warning("prompt %d was not warmed: its stream ended unfinished", index)
        else:
            self.prompt_tokens.append(prompt_tokens)


def _closing(outputs: AsyncIterator[Any]) -> AsyncExitStack:
    """Closes a generator that was left early here and now, instead of whenever it is collected."""
    stack = AsyncExitStack()
    if isinstance(outputs, AsyncGenerator):
        stack.push_async_callback(outputs.aclose)
    return stack
