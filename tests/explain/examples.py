"""Entries and requests that nearly fit them."""

from __future__ import annotations

from typing import Any

from warmd.engines.base import Chat
from warmd.prompts.document import Entry

Json = dict[str, Any]
SYSTEM = "You are a careful reviewer of code. Name the worst problem first."


def system(text: str = SYSTEM, role: str = "system") -> Json:
    return {"role": role, "content": text}


def user(text: str = "hello") -> Json:
    return {"role": "user", "content": text}


def tool(name: str, description: str = "Does something.", **more: Any) -> Json:
    function = {"name": name, "description": description, "parameters": {"type": "object", "properties": {}}}
    return {"type": "function", "function": function | more}


def make_entry(*messages: Json, tools: list[Json] | None = None, digest: str = "1", **kwargs: Any) -> Entry:
    given = tuple(tools) if tools is not None else None
    return Entry("a", 0, messages or (system(),), given, kwargs, 0, digest)


def make_chat(*messages: Json, tools: list[Json] | None = None, **kwargs: Any) -> Chat:
    return Chat(list(messages) or [system(), user()], tools, kwargs)
