"""The keys that the file may have, and how paths are shown without showing anybody's text."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from warmd.prompts.jsontext import Path

FILE_KEYS = ("prompts", "defaults")
DEFAULTS_KEYS = ("chat_template_kwargs", "priority")
ENTRY_KEYS = ("name", "priority", "model", "messages", "tools", "tools_file", "chat_template_kwargs")
MESSAGE_KEYS = ("role", "content", "content_file", "tool_calls")

_SHOWN = frozenset(
    (
        *FILE_KEYS,
        *DEFAULTS_KEYS,
        *ENTRY_KEYS,
        *MESSAGE_KEYS,
        *("$schema", "$comment", "name", "type", "text", "function", "parameters", "arguments", "id"),
        *("properties", "required", "items", "enum", "description", "image_url", "url"),
    )
)


def show_path(path: Path) -> str:
    """A JSON path such as ``$.prompts[1].tools[0].*``: keys that are not ours could be somebody's text."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part if part in _SHOWN else '*'}" for part in path)
    return "$" + "".join(parts)


def is_free(key: str, *, is_top: bool = False) -> bool:
    """True for keys that anyone may use for anything."""
    return key == "$comment" or key.startswith("x-") or (is_top and key == "$schema")


def nearest(key: str, known: Collection[str]) -> str:
    """The known key that an unknown one is most like."""
    # A key can be as long as the file, and the comparison takes the product of the lengths.
    return difflib.get_close_matches(key[:50], known, n=1, cutoff=0.0)[0]
