"""The first difference between two lists of tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from warmd.explain.causes import Cause, text_reason
from warmd.explain.structure import canonical, first_split, show, written
from warmd.text import counted


@dataclass(frozen=True, slots=True)
class ToolsSplit:
    """Where two lists of tools part, with the texts there."""

    place: str
    cause: Cause
    message: str
    entry: str = field(repr=False)
    request: str = field(repr=False)


def tools_split(entry: Sequence[Any], request: Sequence[Any]) -> ToolsSplit | None:
    """The first difference, or None when both are written alike."""
    if not entry and not request:
        return None
    if not request:
        text = f"the request has no tools, the entry has {counted(len(entry), 'tool')}"
        return ToolsSplit("tools", "tools_missing", text, written(entry[0]), "")
    if not entry:
        text = f"the request has {counted(len(request), 'tool')}, the entry has none"
        return ToolsSplit("tools", "tools_extra", text, "", written(request[0]))
    for index in range(max(len(entry), len(request))):
        left = entry[index] if index < len(entry) else None
        right = request[index] if index < len(request) else None
        if left is None or right is None or written(left) != written(right):
            return _at(index, entry, request)
    return None


def tool_name(tool: Any) -> str | None:
    """A tool's name, wherever its client keeps it."""
    function = tool.get("function") if isinstance(tool, dict) else None
    for place in (function, tool):
        if isinstance(place, dict) and isinstance(place.get("name"), str):
            return str(place["name"])
    return None


def _at(index: int, entry: Sequence[Any], request: Sequence[Any]) -> ToolsSplit:
    left, right = entry[index : index + 1], request[index : index + 1]
    texts = "".join(map(written, left)), "".join(map(written, right))
    place = f"tools[{index}]"
    names = [tool_name(tool) for tool in entry], [tool_name(tool) for tool in request]
    if left and right and names[0][index] == names[1][index]:
        return _same_tool(index, left[0], right[0])
    if sorted(map(canonical, entry)) == sorted(map(canonical, request)):
        return ToolsSplit(place, "tools_order", _other_order(names, index), *texts)
    if left and names[0][index] not in names[1]:
        return ToolsSplit(place, "tool_missing", f"the request has no tool {names[0][index]!r}", *texts)
    if right and names[1][index] not in names[0]:
        return ToolsSplit(place, "tool_extra", f"the entry has no tool {names[1][index]!r}", *texts)
    if not left or not right:
        more = "entry" if left else "request"
        return ToolsSplit(
            place, "tool_missing" if left else "tool_extra", f"only the {more} has this tool", *texts
        )
    return ToolsSplit(place, "tools_order", _other_order(names, index), *texts)


def _other_order(names: tuple[list[str | None], list[str | None]], index: int) -> str:
    own, other = names[0][index], names[1][index]
    return f"the tools come in another order: {own!r} in the entry, {other!r} in the request"


def _same_tool(index: int, left: Any, right: Any) -> ToolsSplit:
    texts = written(left), written(right)
    split = first_split(left, right, ("tools", index))
    place = show(split.path) if split is not None else f"tools[{index}]"
    name = tool_name(left)
    if canonical(left) == canonical(right):
        return ToolsSplit(
            place, "tools_key_order", f"the keys of tool {name!r} come in another order", *texts
        )
    if (
        split is not None
        and split.kind == "value"
        and isinstance(split.entry, str)
        and isinstance(split.request, str)
    ):
        reason = text_reason(split.entry, split.request)
        cause: Cause = "tool_changed" if reason.cause in ("text", "text_ends", "number") else reason.cause
        return ToolsSplit(place, cause, f"tool {name!r}: {reason.message}", split.entry, split.request)
    words = {
        "only_entry": "only the entry has this",
        "only_request": "only the request has this",
        "order": "the order differs",
    }
    what = words.get(split.kind if split is not None else "", "another value")
    return ToolsSplit(place, "tool_changed", f"tool {name!r}: {what}", *texts)
