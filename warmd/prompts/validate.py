"""The rules of the warm-prompts file, over parsed JSON. Every violation is found, not only the first."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from warmd.prompts.files import is_file_name
from warmd.prompts.findings import Finding
from warmd.prompts.jsontext import MAX_PROBLEMS, Path
from warmd.prompts.vocabulary import DEFAULTS_KEYS, ENTRY_KEYS, FILE_KEYS, is_free, nearest

MAX_NAME = 200
IMAGE_TYPES = ("image_url", "input_image", "image")


Findings = Iterator[Finding]


def validate(value: Any) -> list[Finding]:
    """Everything that is wrong with a parsed file, up to `MAX_PROBLEMS`."""
    return list(islice(_file(value), MAX_PROBLEMS))


def entries_of(value: Any) -> tuple[Any, Path]:
    """The list of entries and its path: the bare list itself, or what stands under ``prompts``."""
    return (value.get("prompts"), ("prompts",)) if isinstance(value, dict) else (value, ())


def kind(value: Any) -> str:
    """Names the type of a value, never the value."""
    if isinstance(value, bool):
        return "a boolean"
    names = {dict: "an object", list: "a list", str: "a string", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _file(value: Any) -> Findings:
    if isinstance(value, list):
        yield from _entries(value, ())
    elif isinstance(value, dict):
        yield from _unknown_keys(value, FILE_KEYS, (), is_top=True)
        if "defaults" in value:
            yield from _defaults(value["defaults"], ("defaults",))
        if "prompts" not in value:
            yield Finding((), "missing 'prompts': expected a list of prompts")
        elif not isinstance(value["prompts"], list):
            yield Finding(("prompts",), f"expected a list of prompts, found {kind(value['prompts'])}")
        else:
            yield from _entries(value["prompts"], ("prompts",))
    else:
        yield Finding((), f"expected a list of prompts or an object with 'prompts', found {kind(value)}")


def _unknown_keys(
    value: dict[str, Any], known: Sequence[str], path: Path, *, is_top: bool = False
) -> Findings:
    for key in value:
        if key not in known and not is_free(key, is_top=is_top):
            message = f"unknown key; the nearest known one is {nearest(key, known)!r}"
            yield Finding((*path, key), message, at_key=True)


def _defaults(value: Any, path: Path) -> Findings:
    if not isinstance(value, dict):
        yield Finding(path, f"expected an object, found {kind(value)}")
        return
    yield from _unknown_keys(value, DEFAULTS_KEYS, path)
    yield from _optional(value, path, {"chat_template_kwargs": _kwargs, "priority": _priority})


def _optional(
    value: dict[str, Any], path: Path, rules: dict[str, Callable[[Any, Path], Findings]]
) -> Findings:
    for key, rule in rules.items():
        if key in value:
            yield from rule(value[key], (*path, key))


def _entries(entries: list[Any], path: Path) -> Findings:
    if entries and all(isinstance(entry, dict) and "role" in entry for entry in entries):
        yield Finding(
            path,
            "this looks like the messages of one prompt; expected a list of prompts, each a list of "
            "messages: put another pair of brackets around it",
        )
        return
    named: dict[str, int] = {}
    for index, entry in enumerate(entries):
        yield from _entry(entry, (*path, index))
        name = entry.get("name") if isinstance(entry, dict) else None
        if isinstance(name, str):
            if name in named:
                first = (*path, named[name], "name")
                yield Finding((*path, index, "name"), "another prompt has this name already,", first=first)
            named.setdefault(name, index)


def _entry(entry: Any, path: Path) -> Findings:
    if isinstance(entry, list):
        yield from _messages(entry, path)
        return
    if not isinstance(entry, dict):
        yield Finding(path, f"expected a list of messages or an object with 'messages', found {kind(entry)}")
        return
    yield from _unknown_keys(entry, ENTRY_KEYS, path)
    if "messages" not in entry:
        yield Finding(path, "missing 'messages': expected a list of messages")
    if "tools" in entry and "tools_file" in entry:
        yield Finding(
            (*path, "tools_file"), "expected either 'tools' or 'tools_file', found both", at_key=True
        )
    yield from _optional(
        entry,
        path,
        {
            "name": _name,
            "priority": _priority,
            "model": _model,
            "messages": _messages,
            "tools": tools_findings,
            "tools_file": _file_name,
            "chat_template_kwargs": _kwargs,
        },
    )


def _name(value: Any, path: Path) -> Findings:
    if not isinstance(value, str):
        yield Finding(path, f"expected a string, found {kind(value)}")
    elif not value.strip() or len(value) > MAX_NAME:
        yield Finding(path, f"expected a name of 1 to {MAX_NAME} characters")
    elif any(unicodedata.category(character) in ("Cc", "Cs") for character in value):
        yield Finding(path, "a name may not contain control characters")
    elif value.startswith("#"):
        yield Finding(path, "a name may not begin with '#': prompts without a name are called #0, #1, …")


def _model(value: Any, path: Path) -> Findings:
    if not isinstance(value, str) or not value.strip():
        yield Finding(path, f"expected a model's name or folder, found {kind(value)}")


def _priority(value: Any, path: Path) -> Findings:
    if not isinstance(value, int) or isinstance(value, bool):
        yield Finding(path, f"expected a whole number, found {kind(value)}")


def _kwargs(value: Any, path: Path) -> Findings:
    if not isinstance(value, dict):
        yield Finding(path, f"expected an object, found {kind(value)}")


def _file_name(value: Any, path: Path) -> Findings:
    if not is_file_name(value):
        yield Finding(path, "expected the path of a file")


def tools_findings(value: Any, path: Path) -> Findings:
    """What is wrong with a list of tools."""
    if not isinstance(value, list):
        yield Finding(path, f"expected a list of tools, found {kind(value)}")
        return
    for index, tool in enumerate(value):
        if not isinstance(tool, dict):
            yield Finding((*path, index), f"expected an object, found {kind(tool)}")


def _messages(value: Any, path: Path) -> Findings:
    if not isinstance(value, list):
        yield Finding(path, f"expected a list of messages, found {kind(value)}")
        return
    if not value:
        yield Finding(path, "expected at least one message")
    for index, message in enumerate(value):
        yield from _message(message, (*path, index))


def _message(message: Any, path: Path) -> Findings:
    if not isinstance(message, dict):
        yield Finding(path, f"expected a message object, found {kind(message)}")
        return
    role = message.get("role")
    if "role" not in message:
        yield Finding(path, "missing 'role'")
    elif role == "":
        yield Finding((*path, "role"), "expected a non-empty string, found an empty string")
    elif not isinstance(role, str):
        yield Finding((*path, "role"), f"expected a non-empty string, found {kind(role)}")
    yield from _tool_calls(message, path)
    yield from _message_content(message, path)


def _tool_calls(message: dict[str, Any], path: Path) -> Findings:
    calls = message.get("tool_calls")
    if calls is None:
        return
    if not isinstance(calls, list):
        yield Finding((*path, "tool_calls"), f"expected a list, found {kind(calls)}")
        return
    for index, call in enumerate(calls):
        if not isinstance(call, dict):
            yield Finding((*path, "tool_calls", index), f"expected an object, found {kind(call)}")


def _message_content(message: dict[str, Any], path: Path) -> Findings:
    if "content_file" in message:
        if "content" in message:
            found = "expected either 'content' or 'content_file', found both"
            yield Finding((*path, "content_file"), found, at_key=True)
        yield from _file_name(message["content_file"], (*path, "content_file"))
        return
    content = message.get("content")
    if content is None:
        if message.get("role") == "assistant" and message.get("tool_calls"):
            return
        if "content" in message:
            yield Finding(
                (*path, "content"), "null is allowed on an assistant message with 'tool_calls' only"
            )
        else:
            yield Finding(path, "missing 'content' (or 'content_file')")
    else:
        yield from _content(content, (*path, "content"))


def _content(content: Any, path: Path) -> Findings:
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        yield Finding(path, f"expected a string or a list of content parts, found {kind(content)}")
        return
    for index, part in enumerate(content):
        yield from _part(part, (*path, index))


def _part(part: Any, path: Path) -> Findings:
    if not isinstance(part, dict):
        yield Finding(path, f"expected a content part object, found {kind(part)}")
        return
    yield from _part_string(part, "type", path)
    if part.get("type") == "text":
        yield from _part_string(part, "text", path)


def _part_string(part: dict[str, Any], key: str, path: Path) -> Findings:
    if key not in part:
        yield Finding(path, f"missing {key!r}: expected a string")
    elif not isinstance(part[key], str):
        yield Finding((*path, key), f"expected a string, found {kind(part[key])}")
