"""The requests that are timed: the same ones in every run, from the entries of the user's file.

Nothing is random: a request depends on its entry and a number only. Requests of different numbers share
no more than they are meant to: what differs comes first.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from warmd.engines.http.engine import make_request
from warmd.prompts.document import Entry, Message

Request = dict[str, Any]

_WORDS = (
    *("apples", "bridges", "castles", "doctors", "engines", "farmers", "gardens", "hammers", "islands"),
    *("jackets", "kitchens", "ladders", "mirrors", "needles", "oranges", "pencils", "quilts", "rivers"),
    *("summers", "tables", "umbrellas", "valleys", "windows", "xylophones", "yards", "zebras"),
)
USER_WORDS = 32
"""Length of a user's text."""


def user_text(number: int) -> str:
    """What the user says in a request: words that begin with another one for each of 26 numbers in a row."""
    words = [_WORDS[(number + step * (1 + number % 5)) % len(_WORDS)] for step in range(USER_WORDS)]
    return f"{' '.join(words).capitalize()}, number {number}?"


def warm_request(entry: Entry, number: int) -> Request:
    """A request of the entry."""
    return make_request(entry, user_text(number))


def tail_request(number: int) -> Request:
    """What such a request has besides the entry: the user's text, and what the template puts around it."""
    return {"messages": [{"role": "user", "content": user_text(number)}]}


def cold_request(entry: Entry, number: int) -> Request:
    """A request of the same length that no cache can know: another beginning of its texts and tools."""
    return make_request(marked(entry, number), user_text(number))


def marked(entry: Entry, number: int) -> Entry:
    """The entry with another beginning of its first text and its tools."""
    messages = copy.deepcopy(entry.messages)
    word = _WORDS[number % len(_WORDS)]
    for message in messages:
        if isinstance(message.get("content"), str) and message["content"]:
            message["content"] = f"{word.capitalize()} {number}. {message['content']}"
            break
    tools = copy.deepcopy(entry.tools)
    for tool in tools or ():
        function = tool.get("function")
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            # Some templates put tools before every text.
            function["name"] = f"{word}_{number}_{function['name']}"
    return replace(entry, messages=messages, tools=tools)


def edited(messages: Sequence[Message], ends_in_user_turn: bool) -> list[Message]:
    """The messages after a small edit at the end of the last text that is part of the prefix."""
    found = copy.deepcopy(list(messages))
    last = len(found) - (2 if ends_in_user_turn else 1)
    for message in reversed(found[: last + 1]):
        if isinstance(message.get("content"), str) and message["content"]:
            message["content"] += " Be brief."
            break
    return found


def prompts_file(entries: Sequence[Entry], edits: Sequence[str] = ()) -> dict[str, Any]:
    """A warm-prompts file with the entries as they were read, those of some names edited."""
    return {"prompts": [_entry(entry, is_edited=entry.name in edits) for entry in entries]}


def _entry(entry: Entry, *, is_edited: bool) -> dict[str, Any]:
    messages = edited(entry.messages, entry.ends_in_user_turn) if is_edited else list(entry.messages)
    found: dict[str, Any] = {"messages": messages, "priority": entry.priority}
    if entry.is_named:
        found["name"] = entry.name
    if entry.tools is not None:
        found["tools"] = list(entry.tools)
    if entry.chat_template_kwargs:
        found["chat_template_kwargs"] = entry.chat_template_kwargs
    return found
