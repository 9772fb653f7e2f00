"""The lint of a whole prompts file, with the lines and columns of what it finds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from warmd.lint.order import Place, equal_entries, equal_tools
from warmd.lint.place import offset_in_string
from warmd.lint.spelling import misspellings
from warmd.lint.spots import find_spots
from warmd.lint.texts import entry_texts, file_names, tool_strings
from warmd.prompts.document import Document, FileError
from warmd.prompts.files import UnreadableError, decode, read_file
from warmd.prompts.includes import Includes
from warmd.prompts.jsontext import Path as JsonPath
from warmd.prompts.jsontext import locate, parse
from warmd.prompts.lines import Lines
from warmd.prompts.validate import entries_of
from warmd.prompts.vocabulary import show_path

MAX_WARNINGS = 100
_WHY = "if it changes from request to request, nothing behind it is served warm"

# The offset in the main file, the path there, and what to say.
_Found = tuple[int, JsonPath, str]


def lint_file(document: Document, now: datetime, max_bytes: int) -> tuple[FileError, ...]:
    """What in a valid file will defeat caching; at most `MAX_WARNINGS`, in the order of the file.

    The file is read once more: nothing is found in one that has changed since.

    Args:
        document: What was loaded from it.
        now: The local time.
        max_bytes: The most that a file may have.
    """
    includes = Includes(document.path.parent, max_bytes)
    try:
        data = read_file(document.path, max_bytes)
        if hashlib.sha256(data).hexdigest() != document.sha256:
            return ()
        text = decode(data)
        value = parse(text).value
        found = [*_in_texts(text, value, now), *_in_files(text, value, includes, now)]
        found += [*_in_order(text, value, document), *_in_spelling(text, value)]
    except UnreadableError:
        return ()
    lines = Lines(text)
    found.sort(key=lambda item: item[0])
    warnings = [
        FileError(*lines.position(offset), show_path(path), message)
        for offset, path, message in found[:MAX_WARNINGS]
    ]
    if len(found) > MAX_WARNINGS:
        warnings.append(FileError(None, None, "$", f"only the first {MAX_WARNINGS} warnings are listed"))
    return tuple(warnings)


def _in_texts(text: str, value: Any, now: datetime) -> list[_Found]:
    """What is in the strings of a JSON text."""
    return _in_strings(text, entry_texts(value), now)


def _in_strings(text: str, strings: Iterable[tuple[JsonPath, str]], now: datetime) -> list[_Found]:
    spots = [(path, message, start) for path, string in strings for message, start in _spots(string, now)]
    places = locate(text, {path for path, _, _ in spots}) if spots else {}
    return [(offset_in_string(text, places[path][0], at), path, message) for path, message, at in spots]


def _in_files(text: str, value: Any, includes: Includes, now: datetime) -> list[_Found]:
    """What is in the files that the entries name, each told where it is named first."""
    found: list[tuple[JsonPath, str]] = []
    for key, look in (("content_file", _in_content), ("tools_file", _in_tools)):
        seen: set[str] = set()
        for path, name in file_names(value, key):
            if name not in seen:
                seen.add(name)
                found += [(path, message) for message in _of_file(name, look, includes, now)]
    places = locate(text, {path for path, _ in found}) if found else {}
    return [(places[path][0], path, message) for path, message in found]


_Look = Callable[[str, datetime], "list[tuple[int, str]]"]


def _of_file(name: str, look: _Look, includes: Includes, now: datetime) -> list[str]:
    text, shown = includes.text(name), includes.shown(name)
    lines = Lines(text)
    places = ((lines.position(offset), message) for offset, message in look(text, now))
    return [f"{shown}:{line}:{column}: {message}" for (line, column), message in places]


def _in_content(text: str, now: datetime) -> list[tuple[int, str]]:
    return [(start, message) for message, start in _spots(text, now)]


def _in_tools(text: str, now: datetime) -> list[tuple[int, str]]:
    strings = tool_strings(parse(text).value)
    found = sorted(_in_strings(text, strings, now), key=lambda item: item[0])
    return [(offset, f"{message} (at {show_path(path)})") for offset, path, message in found]


def _spots(string: str, now: datetime) -> list[tuple[str, int]]:
    """One message for each kind of thing in a string, and where the first of them begins."""
    kinds: dict[str, list[int]] = {}
    for spot in find_spots(string, now):
        kinds.setdefault(spot.what, []).append(spot.start)
    return [(f"{what}{_more(len(starts) - 1)}: {_WHY}", starts[0]) for what, starts in kinds.items()]


def _more(count: int) -> str:
    return f" (and {count} more)" if count else ""


def _in_order(text: str, value: Any, document: Document) -> list[_Found]:
    """What is the same but for the order of keys."""
    base = entries_of(value)[1]
    entries = equal_entries(document.entries)
    found: list[tuple[JsonPath, JsonPath, str]] = [
        ((*base, index), (*base, other), "the same as the prompt") for index, other in entries.items()
    ]
    found += [
        (_tool_path(value, place), _tool_path(value, other), "the same tool as the one")
        for place, other in equal_tools(document.entries)
        # Of equal entries it has been said.
        if place.entry not in entries
    ]
    places = locate(text, {path for item in found for path in item[:2]}) if found else {}
    lines = Lines(text)
    return [
        (
            places[path][0],
            path,
            f"{what} on line {lines.position(places[other][0])[0]}, but with its keys in another order: "
            "they share no state from there on",
        )
        for path, other, what in found
    ]


def _in_spelling(text: str, value: Any) -> list[_Found]:
    """Roles and keys that look misspelled."""
    found = list(misspellings(value))
    places = locate(text, {item.path for item in found}) if found else {}
    return [(places[item.path][item.at_key], item.path, item.message) for item in found]


def _tool_path(value: Any, place: Place) -> JsonPath:
    """Where a tool stands in the main file: by itself, or as the name of its file."""
    entries, base = entries_of(value)
    if "tools_file" in entries[place.entry]:
        return (*base, place.entry, "tools_file")
    return (*base, place.entry, "tools", place.tool)
