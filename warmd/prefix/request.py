"""What an entry's real request is, and how an engine encodes it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Protocol

from warmd.prefix.tokens import token_ids
from warmd.prompts.document import Entry, Message


class Renderer(Protocol):
    """An engine's request path, as a pure function.

    Attributes:
        template: The chat template's source, or "" when it is not known. It only guides which user texts
            are tried.
    """

    @property
    def template(self) -> str: ...

    def encode(
        self, messages: list[Message], tools: list[dict[str, Any]] | None, kwargs: dict[str, Any]
    ) -> Any:
        """Encode one full request, the generation prompt included, exactly as a live one is encoded.

        May change what it is given. Returns token ids in any shape that `token_ids` accepts.

        Raises:
            Exception: Whatever the template or the tokenizer raises.
        """

    def vocabulary(self) -> Sequence[str]:
        """The raw token strings, each at the index that is its id ("" for a hole); may be empty."""


def request_messages(entry: Entry, user_text: str) -> list[Message]:
    """A deep copy of the entry's conversation, as a request whose user says `user_text`.

    The content of a user turn at the end is replaced; after any other turn a user turn is added.
    """
    messages = [copy.deepcopy(message) for message in entry.messages]
    if entry.ends_in_user_turn:
        messages[-1]["content"] = user_text
    else:
        messages.append({"role": "user", "content": user_text})
    return messages


def encode_request(
    entry: Entry, renderer: Renderer, messages: list[Message], *, with_tools: bool = True
) -> list[int]:
    """Encode `messages` with copies of the entry's tools and template arguments."""
    tools = [copy.deepcopy(tool) for tool in entry.tools] if with_tools and entry.tools else None
    return token_ids(renderer.encode(messages, tools, copy.deepcopy(entry.chat_template_kwargs)))


def ignores_tools(entry: Entry, renderer: Renderer) -> bool:
    """True when an entry has tools, and a request comes to the same tokens without them."""
    if not entry.tools:
        return False
    # All of a request: some templates print the tools behind what the user says, where no prefix reaches.
    messages = request_messages(entry, "hello")
    try:
        bare = encode_request(entry, renderer, messages, with_tools=False)
        return bare == encode_request(entry, renderer, messages)
    # Templates and tokenizers raise anything; what cannot do without tools does not ignore them.
    except Exception:  # noqa: BLE001
        return False
