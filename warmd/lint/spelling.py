"""Roles and keys of messages that look misspelled.

Any role and any key may be right, for templates are free to use them; but most pass over what they do not
know, and the text with it, in silence.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from warmd.nearest import nearest_of
from warmd.prompts.jsontext import Path
from warmd.prompts.validate import entries_of
from warmd.prompts.vocabulary import MESSAGE_KEYS, is_free

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
TEMPLATE_ROLES = ("ipython", "observation", "model", "environment", "documents", "context")
"""Of Llama, GLM, Gemma and Granite, for example: known, but hardly what a misspelling was meant to be."""

KEYS = (
    *MESSAGE_KEYS,
    *("name", "tool_call_id", "function_call", "reasoning", "reasoning_content", "thinking", "refusal"),
    *("audio", "annotations", "id", "type", "content_type", "tools", "documents", "citations", "channel"),
)
"""Of messages, as clients send them and templates read them."""


class Misspelling(NamedTuple):
    """A role or a key that looks misspelled.

    Attributes:
        path: Of the role, or of the value under the key.
        message: What to say.
        at_key: True when the key is meant.
    """

    path: Path
    message: str
    at_key: bool


def misspellings(value: Any) -> Iterator[Misspelling]:
    """What looks misspelled in a parsed, valid prompts file."""
    entries, path = entries_of(value)
    for index, entry in enumerate(entries):
        at = (*path, index)
        messages, within = (entry, at) if isinstance(entry, list) else (entry["messages"], (*at, "messages"))
        for number, message in enumerate(messages):
            yield from _of_message(message, (*within, number))


def _of_message(message: dict[str, Any], path: Path) -> Iterator[Misspelling]:
    role = message["role"]
    if role not in ROLES + TEMPLATE_ROLES:
        yield Misspelling((*path, "role"), _of_role(role), at_key=False)
    for key in message:
        if key in KEYS or is_free(key):
            continue
        if (near := nearest_of(key, KEYS)) is not None:
            said = f"a key that templates may not know; the nearest known one is {near!r}"
            yield Misspelling((*path, key), said, at_key=True)


def _of_role(role: str) -> str:
    near = nearest_of(role, ROLES)
    known = f"the nearest known one is {near!r}" if near else f"known ones are {', '.join(ROLES)}"
    return f"a role that templates may not know; {known}"
