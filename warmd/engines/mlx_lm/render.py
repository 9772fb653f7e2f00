"""mlx-lm's request path, from messages to token ids, as a pure function."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from mlx_lm import server

from warmd.engines.templates import ConnectedTemplates
from warmd.prefix import vocabulary_by_id


class _Quiet(threading.local, logging.Filter):
    """Keeps mlx-lm's remarks on a request out of the log while we only render one, many times over."""

    is_on = False

    def filter(self, record: logging.LogRecord) -> bool:
        return not self.is_on


_QUIET = _Quiet()
# mlx-lm's server logs through the root logger.
logging.getLogger().addFilter(_QUIET)


@contextmanager
def _quiet() -> Iterator[None]:
    _QUIET.is_on = True
    try:
        yield
    finally:
        _QUIET.is_on = False


class _SegmentMemory:
    """A tokenizer that renders the system part of the same conversation once.

    After each request the server renders its system messages again, to find where they end. While a prefix is
    searched these are the same every time, and half of the work.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._remembered: tuple[Any, Any] = (None, None)

    def apply_chat_template(self, messages: Any, *, add_generation_prompt: bool, **kwargs: Any) -> Any:
        """As mlx-lm's, but remembers the last render without generation prompt."""
        apply = self._tokenizer.apply_chat_template
        if add_generation_prompt:
            return apply(messages, add_generation_prompt=True, **kwargs)
        what = copy.deepcopy((messages, kwargs))
        if self._remembered[0] != what:
            self._remembered = what, apply(messages, add_generation_prompt=False, **kwargs)
        return self._remembered[1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


class RequestPath:
    """Renders exactly as `mlx_lm.server` renders a chat request. Satisfies `warmd.prefix.Renderer`.

    Args:
        tokenizer: An mlx-lm `TokenizerWrapper` that no other thread uses: a fast tokenizer shared by two
            threads can return truncated results (huggingface/transformers#47085).
        chat_template_args: The server's ``--chat-template-args``.
        processor: The loaded model's image processor, or None.

    Attributes:
        clock: The one that the chat template asks.
    """

    def __init__(self, tokenizer: Any, chat_template_args: dict[str, Any], processor: Any = None) -> None:
        self._tokenizer = _SegmentMemory(tokenizer)
        self._owner = SimpleNamespace(
            model_provider=SimpleNamespace(
                processor=processor, cli_args=SimpleNamespace(chat_template_args=chat_template_args)
            )
        )
        template = getattr(tokenizer, "chat_template", None)
        self.template: str = template if isinstance(template, str) else ""
        self._templates = ConnectedTemplates(tokenizer)
        self.clock = self._templates.clock
        # Renders of one entry may outlive its cancelled task; a tokenizer serves one at a time.
        self._lock = threading.Lock()
        self._vocabulary: Sequence[str] | None = None

    def encode(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, kwargs: dict[str, Any]
    ) -> list[int]:
        """Token ids of a chat request. May change `messages` in place, as the server does."""
        request = server.CompletionRequest("chat", "", messages, tools, None)
        args = SimpleNamespace(chat_template_kwargs=kwargs or None)
        with self._lock, _quiet():
            self._templates.renew()
            prompt: list[int] = server.ResponseGenerator._tokenize(
                self._owner, self._tokenizer, request, args
            )[0]
        return prompt

    @property
    def template_arguments(self) -> dict[str, Any]:
        """What the server adds to the template arguments of every request."""
        return dict(self._owner.model_provider.cli_args.chat_template_args or {})

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some token ids, special tokens included."""
        with self._lock:
            text: str = self._tokenizer.decode(
                list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        return text

    def vocabulary(self) -> Sequence[str]:
        """Raw token strings by id, with the marks that the tokenizer's kind uses for spaces."""
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = vocabulary_by_id(self._tokenizer.get_vocab())
            return self._vocabulary
