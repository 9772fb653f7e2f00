"""An entry as the prompts file says it, with long texts in files beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from warmd.capture.shared import Captured
from warmd.prompts.document import Message
from warmd.prompts.files import BOM

LONG = 200
"""Characters; what is longer, or has several lines, goes into a file."""

# What editors do not show is safer as a JSON escape.
_UNEDITABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_CONTENTS = ("messages", "tools", "tools_file", "chat_template_kwargs")

PickName = Callable[[str, str], str]
"""Takes a folder and a suffix; returns a file name, relative to the prompts file, that is free."""


@dataclass(frozen=True, slots=True)
class EntryJson:
    """The entry, and the files that it names with what is to be in them."""

    value: dict[str, Any] = field(repr=False)
    files: dict[str, bytes] = field(repr=False)


def make_entry_json(
    name: str, captured: Captured, old: Mapping[str, Any] | None, pick: PickName
) -> EntryJson:
    """Build it.

    Args:
        name: Of the entry.
        captured: What it consists of.
        old: The entry that it replaces: its other keys and their order are kept.
        pick: Finds names for files.
    """
    files: dict[str, bytes] = {}
    new: dict[str, Any] = {"messages": [_message(message, files, pick) for message in captured.messages]}
    if captured.tools is not None:
        file = pick("tools", ".json")
        files[file] = (
            json.dumps(captured.tools, ensure_ascii=False, allow_nan=False, indent=2) + "\n"
        ).encode()
        new["tools_file"] = file
    if captured.chat_template_kwargs:
        new["chat_template_kwargs"] = captured.chat_template_kwargs
    return EntryJson(dict(_members(name, old or {}, new)), files)


def _members(name: str, old: Mapping[str, Any], new: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if "name" not in old:
        yield "name", name
    for key, value in old.items():
        if key not in _CONTENTS:
            yield key, value
        found = "tools_file" if key == "tools" else key
        if found in new:
            yield found, new.pop(found)
    yield from new.items()


def _message(message: Message, files: dict[str, bytes], pick: PickName) -> Message:
    content = message.get("content")
    if not isinstance(content, str) or not _is_for_a_file(content):
        return message
    file = pick("prompts", ".md")
    files[file] = text_bytes(content)
    # In its place: the order of a message's keys can reach a template.
    return dict(
        ("content_file", file) if key == "content" else (key, value) for key, value in message.items()
    )


def _is_for_a_file(text: str) -> bool:
    is_long = len(text) > LONG or "\n" in text or "\r" in text
    return is_long and _UNEDITABLE.search(text) is None


def text_bytes(text: str) -> bytes:
    """A text as a file from which exactly this text is read."""
    data = text.encode()
    # The first mark is not part of a file's text: one that is needs another before it.
    return BOM + data if data.startswith(BOM) else data
