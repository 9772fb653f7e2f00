"""What differs between an entry and a request, by what they consist of."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warmd.explain.causes import Cause, text_reason
from warmd.explain.excerpt import Excerpt, make_excerpt
from warmd.explain.structure import Split, first_split, show, written
from warmd.explain.tools import tools_split
from warmd.prompts.document import Entry

SYSTEM_ROLES = ("system", "developer")
_UNSET = object()
_LONGEST_VALUE = 60


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differs.

    Attributes:
        place: Where, such as ``messages[0] (system)`` or ``tools[3].function.description``.
        cause: The likely cause.
        message: The same for a person.
        excerpt: The texts there, if it lies in a text.
    """

    place: str
    cause: Cause
    message: str
    excerpt: Excerpt | None = None


def message_difference(entry: Entry, messages: Sequence[Any]) -> Difference | None:
    """The first message in which a request is not what the entry says."""
    own = entry.messages[:-1] if entry.ends_in_user_turn else entry.messages
    for index, message in enumerate(own):
        if index >= len(messages):
            text = f"the request has only {len(messages)} of the entry's {len(own)} messages"
            return Difference(f"messages[{index}]", "turn", text, make_excerpt(content_text(message), ""))
        found = _message(index, message, messages[index], messages)
        if found is not None:
            return found
    following = messages[len(own)] if len(own) < len(messages) else None
    if _role(following) in ("user", None):
        return None
    role = _role(following)
    text = f"the request goes on with a message of the role {role!r}, not with the user's"
    return Difference(f"messages[{len(own)}] ({role})", "turn", text)


def _message(index: int, own: Any, other: Any, messages: Sequence[Any]) -> Difference | None:
    place = f"messages[{index}] ({_role(own)})"
    excerpt = make_excerpt(content_text(own), content_text(other))
    if _role(own) != _role(other):
        return _other_role(place, own, other, messages, excerpt)
    texts = content_text(own), content_text(other)
    if texts[0] != texts[1]:
        reason = text_reason(*texts)
        if reason.message == "another text" and _role(own) in SYSTEM_ROLES:
            return Difference(place, "system_text", "the request has another system text", excerpt)
        return Difference(place, reason.cause, reason.message, excerpt)
    split = first_split(_rest(own), _rest(other), ("messages", index))
    return None if split is None else _field(split)


def _other_role(place: str, own: Any, other: Any, messages: Sequence[Any], excerpt: Excerpt) -> Difference:
    has_system = any(_role(message) in SYSTEM_ROLES for message in messages)
    if _role(own) in SYSTEM_ROLES and not has_system:
        excerpt = make_excerpt(content_text(own), "")
        text = "the request has no system message, and the chat template may put a default of its own there"
        return Difference(place, "no_system", text, excerpt)
    if _role(other) in SYSTEM_ROLES and _role(own) not in SYSTEM_ROLES:
        text = f"the request has a message of the role {_role(other)!r} that the entry has not"
        return Difference(place, "extra_system", text, make_excerpt("", content_text(other)))
    text = f"the role is {_role(own)!r} in the entry and {_role(other)!r} in the request"
    return Difference(place, "role", text, excerpt)


def _field(split: Split) -> Difference:
    words = {
        "value": "this differs",
        "order": "the order differs",
        "only_entry": "only the entry has this",
        "only_request": "only the request has this",
    }
    excerpt = make_excerpt(_shown(split.entry), _shown(split.request))
    return Difference(show(split.path), "message_field", words[split.kind], excerpt)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else written(value)


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, Mapping) else None


def content_text(message: Any) -> str:
    """The text of a message, its parts joined as servers join them."""
    content = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, Mapping))
        return "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def _rest(message: Mapping[str, Any]) -> dict[str, Any]:
    """What else a message says; arguments of tool calls as values, whose spelling servers forget."""
    rest = {
        key: value for key, value in message.items() if key not in ("role", "content") and value is not None
    }
    if isinstance(rest.get("tool_calls"), list):
        rest["tool_calls"] = [_call(call) for call in rest["tool_calls"]]
    return rest


def _call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"])
    except (ValueError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def tool_difference(entry: Entry, tools: Sequence[Any] | None) -> Difference | None:
    """The first difference of the tools."""
    found = tools_split(entry.tools or (), tools or ())
    if found is None:
        return None
    return Difference(found.place, found.cause, found.message, make_excerpt(found.entry, found.request))


def argument_differences(
    entry: Entry, kwargs: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Iterator[Difference]:
    """Template arguments that differ once the server's own are added to both."""
    ours, theirs = {**defaults, **entry.chat_template_kwargs}, {**defaults, **kwargs}
    for key in dict.fromkeys([*ours, *theirs]):
        values = ours.get(key, _UNSET), theirs.get(key, _UNSET)
        if _value(values[0]) != _value(values[1]):
            is_thinking = "think" in key.lower() or "reason" in key.lower()
            text = f"{_value(values[0])} in the entry, {_value(values[1])} in the request"
            cause: Cause = "thinking" if is_thinking else "template_argument"
            yield Difference(f"chat_template_kwargs.{key}", cause, text)


def _value(value: Any) -> str:
    if value is _UNSET:
        return "not set"
    text = written(value)
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"
