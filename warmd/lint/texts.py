"""The texts of a parsed prompts file that become part of prefixes, with where they stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from warmd.prompts.jsontext import Path
from warmd.prompts.validate import entries_of

Texts = Iterator[tuple[Path, str]]


def entry_texts(value: Any) -> Texts:
    """Every string of the file that reaches a template, but for names of files."""
    defaults = value.get("defaults", {}) if isinstance(value, dict) else {}
    yield from _strings(defaults.get("chat_template_kwargs"), ("defaults", "chat_template_kwargs"))
    entries, path = entries_of(value)
    for index, entry in enumerate(entries):
        at = (*path, index)
        if isinstance(entry, list):
            yield from _messages(entry, at)
            continue
        yield from _messages(entry["messages"], (*at, "messages"))
        for key in ("tools", "chat_template_kwargs"):
            yield from _strings(entry.get(key), (*at, key))


def file_names(value: Any, key: str) -> Texts:
    """The files that the entries name: by `content_file` or `tools_file`."""
    entries, path = entries_of(value)
    for index, entry in enumerate(entries):
        at = (*path, index)
        if key == "tools_file":
            if isinstance(entry, dict) and key in entry:
                yield (*at, key), entry[key]
            continue
        messages, within = (entry, at) if isinstance(entry, list) else (entry["messages"], (*at, "messages"))
        for number, message in enumerate(messages):
            # The prefix ends where a last user turn begins.
            if key in message and not _is_stand_in(messages, number):
                yield (*within, number, key), message[key]


def _messages(messages: list[Any], path: Path) -> Texts:
    for index, message in enumerate(messages):
        if _is_stand_in(messages, index):
            continue
        content, at = message.get("content"), (*path, index, "content")
        parts = content if isinstance(content, list) else []
        if isinstance(content, str):
            yield at, content
        for number, part in enumerate(parts):
            if isinstance(part.get("text"), str):
                yield (*at, number, "text"), part["text"]
        yield from _arguments(message.get("tool_calls") or (), (*path, index, "tool_calls"))


def _arguments(calls: Any, path: Path) -> Texts:
    for index, call in enumerate(calls):
        function = call.get("function")
        if isinstance(function, dict):
            yield from _strings(function.get("arguments"), (*path, index, "function", "arguments"))


def _is_stand_in(messages: list[Any], index: int) -> bool:
    return index == len(messages) - 1 and messages[index].get("role") == "user"


def _strings(value: Any, path: Path) -> Texts:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _strings(item, (*path, index))


def tool_strings(tools: Any) -> Texts:
    """Every string in a list of tools."""
    yield from _strings(tools, ())
