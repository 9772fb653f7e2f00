"""What all requests of an agent begin with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from warmd.capture.errors import NothingSharedError
from warmd.engines.base import Chat
from warmd.explain.causes import volatile_reason
from warmd.explain.difference import SYSTEM_ROLES, content_text
from warmd.explain.structure import written
from warmd.explain.tools import tools_split
from warmd.prompts.document import Entry, Message
from warmd.radix import common_length


@dataclass(frozen=True, slots=True)
class Captured:
    """What an entry for the requests would consist of.

    Attributes:
        messages: Their common beginning; a lone user turn as a stand-in where only tools precede it.
        tools: With their keys in the order in which the client sent them; None without any.
        chat_template_kwargs: The arguments that all of them have alike.
        notes: What a person should know; without text.
    """

    messages: tuple[Message, ...] = field(repr=False)
    tools: tuple[Any, ...] | None = field(repr=False)
    chat_template_kwargs: dict[str, Any] = field(repr=False)
    notes: tuple[str, ...] = ()

    def to_entry(self, name: str) -> Entry:
        """An entry that stands in no file, to be rendered."""
        return Entry(name, 0, self.messages, self.tools, self.chat_template_kwargs, 0, digest="")


def capture(chats: Sequence[Chat]) -> Captured:
    """Take what all requests begin with.

    Of a single request these are its leading system (and developer) messages. Of several it is every leading
    message that is the same in all of them and followed by a user's turn in each: texts are never cut within
    a message, for a prefix that ends in the middle of a text is no entry's.

    Raises:
        NothingSharedError: There is nothing, or the requests are not of one agent.
    """
    conversations = [[_plain(message) for message in chat.messages] for chat in chats]
    tools = _tools(chats)
    kwargs, notes = _arguments(chats)
    count = _common(conversations) if len(conversations) > 1 else _leading(conversations[0])
    messages = tuple(conversations[0][:count])
    if not messages:
        messages = _stand_in(conversations, tools)
    elif any(_role(chat, count) not in ("user", None) for chat in conversations):
        notes = (
            *notes,
            "what follows in the requests is no user turn, so their last common tokens may be left out",
        )
    _check_writable(messages, tools, kwargs)
    return Captured(messages, tools, kwargs, notes)


def _plain(message: Any) -> Message:
    """A message as a prompts file says it: its text parts joined, as servers join them."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise NothingSharedError("a request has a message that is none")
    content = message.get("content")
    if isinstance(content, list) and all(_is_text(part) for part in content):
        return {**message, "content": content_text(message)}
    return message


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _role(conversation: Sequence[Message], index: int) -> str | None:
    return str(conversation[index]["role"]) if index < len(conversation) else None


def _leading(conversation: Sequence[Message]) -> int:
    roles = [message["role"] in SYSTEM_ROLES for message in conversation]
    return roles.index(False) if False in roles else len(roles)


def _common(conversations: Sequence[Sequence[Message]]) -> int:
    """How many messages to keep: up to the last place where every request goes on with a user's turn."""
    same = 0
    for messages in zip(*conversations, strict=False):
        if len({written(message) for message in messages}) > 1:
            break
        same += 1
    for count in range(same, 0, -1):
        if all(_role(conversation, count) == "user" for conversation in conversations):
            return count
    return min(same, _leading(conversations[0]))


def _stand_in(
    conversations: Sequence[Sequence[Message]], tools: tuple[Any, ...] | None
) -> tuple[Message, ...]:
    """The messages of an entry whose requests have no common ones."""
    firsts = [conversation[0] for conversation in conversations if conversation]
    if any(message["role"] in SYSTEM_ROLES for message in firsts):
        raise NothingSharedError(_unlike(firsts))
    if tools is None:
        raise NothingSharedError("nothing precedes the user's text: there is no system message, and no tools")
    return ({"role": "user", "content": ""},)


def _unlike(firsts: Sequence[Message]) -> str:
    texts = [content_text(message) for message in firsts]
    other = next((text for text in texts if text != texts[0]), None)
    if other is None or len({message["role"] for message in firsts}) > 1:
        return "the requests begin with different messages: are they of one agent?"
    reason = volatile_reason(texts[0], other)
    how = (
        reason.message if reason is not None else f"from character {common_length(texts[0], other) + 1:,} on"
    )
    return f"the requests' system messages differ: {how}"


def _tools(chats: Sequence[Chat]) -> tuple[Any, ...] | None:
    first = chats[0].tools or ()
    for chat in chats[1:]:
        split = tools_split(first, chat.tools or ())
        if split is not None:
            raise NothingSharedError(f"the requests have different tools (at {split.place})")
    return tuple(first) or None


def _arguments(chats: Sequence[Chat]) -> tuple[dict[str, Any], tuple[str, ...]]:
    first: Mapping[str, Any] = chats[0].chat_template_kwargs
    same = {
        key: value
        for key, value in first.items()
        if all(
            key in chat.chat_template_kwargs and written(chat.chat_template_kwargs[key]) == written(value)
            for chat in chats
        )
    }
    every = dict.fromkeys(key for chat in chats for key in chat.chat_template_kwargs)
    left_out = [key for key in every if key not in same]
    notes = (f"chat_template_kwargs that differ are left out: {', '.join(left_out)}",) if left_out else ()
    return same, notes


def _check_writable(
    messages: Sequence[Message], tools: Sequence[Any] | None, kwargs: Mapping[str, Any]
) -> None:
    if any("content_file" in message for message in messages):
        raise NothingSharedError("a message has a 'content_file', which only the prompts file may have")
    if any(isinstance(message.get("content"), list) for message in messages):
        raise NothingSharedError("a message has a part that is no text, which no prefix can hold")
    if not all(isinstance(tool, dict) for tool in tools or ()):
        raise NothingSharedError("a tool is no object")
    try:
        json.dumps([messages, tools, kwargs], ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError, RecursionError):
        raise NothingSharedError("the request holds what cannot be written as JSON text") from None
