"""Files that the warm-prompts file names: long texts and tool lists kept beside it."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warmd.prompts.document import FileError
from warmd.prompts.files import UnreadableError, decode, is_file_name, read_file
from warmd.prompts.findings import Finding, to_errors
from warmd.prompts.jsontext import Path as JsonPath
from warmd.prompts.jsontext import parse
from warmd.prompts.validate import tools_findings

_LONGEST_SHOWN = 200
# Has a folder or a suffix, and nothing that prose needs.
_PLAIN_NAME = re.compile(r"[\w~.+@-]*[./][\w~./+@-]*")


@dataclass(frozen=True, slots=True)
class ToolsFile:
    """A tools file's list, and everything that is wrong with it."""

    tools: list[dict[str, Any]]
    errors: tuple[FileError, ...]


class Includes:
    """Reads each included file once, and remembers what was read.

    Args:
        base: The directory that relative names start from: that of the file that names them.
        max_bytes: Larger files are refused.
    """

    def __init__(self, base: Path, max_bytes: int) -> None:
        self._base = base
        self._max_bytes = max_bytes
        self._read: dict[Path, bytes | UnreadableError] = {}
        self._texts: dict[Path, str] = {}
        self._tools: dict[Path, ToolsFile] = {}
        self._told: set[Path] = set()

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that was asked for, readable or not, in order."""
        return tuple(self._read)

    def text(self, name: str) -> str:
        """The text of a file, without its byte order mark.

        Raises:
            UnreadableError: It cannot be read, or is not UTF-8.
        """
        path = self._locate(name)
        if path not in self._texts:
            self._texts[path] = decode(self._bytes(path))
        return self._texts[path]

    def tools(self, name: str) -> ToolsFile:
        """The tools in a file.

        Raises:
            UnreadableError: It cannot be read, or is not UTF-8.
        """
        path = self._locate(name)
        if path not in self._tools:
            self._tools[path] = _parse_tools(self.text(name))
        return self._tools[path]

    def untold(self, name: str) -> tuple[FileError, ...]:
        """What is wrong with a tools file: everything the first time, then only the first error."""
        # Thousands of entries may name one file that is wrong in a thousand places.
        path, errors = self._locate(name), self.tools(name).errors
        is_told = path in self._told
        self._told.add(path)
        return errors[:1] if is_told else errors

    def shown(self, name: str) -> str:
        """A name for messages."""
        # A prompt that was put where a file's name belongs must not reach a log, and it names no file. What a
        # log could not encode, or would break its line, is not shown in any case.
        is_there = os.path.lexists(self._locate(name))
        is_plain = len(name) <= _LONGEST_SHOWN and _PLAIN_NAME.fullmatch(name) is not None
        return name if name.isprintable() and (is_there or is_plain) else "the file"

    def update(self, digest: Any) -> None:
        """Add what was read to a hash, file by file."""
        for path, data in self._read.items():
            if isinstance(data, bytes):
                digest.update(str(path).encode("utf-8", "surrogateescape") + b"\0")
                digest.update(hashlib.sha256(data).digest())

    def _bytes(self, path: Path) -> bytes:
        if path not in self._read:
            try:
                self._read[path] = read_file(path, self._max_bytes)
            except UnreadableError as error:
                self._read[path] = error
        data = self._read[path]
        if isinstance(data, UnreadableError):
            raise data
        return data

    def _locate(self, name: str) -> Path:
        try:
            return self._base / Path(name).expanduser()
        except RuntimeError:
            # There is no home to expand ~ to.
            return self._base / name


def resolve(entries: Any, path: JsonPath, includes: Includes) -> Iterator[Finding]:
    """Replace `content_file` by `content` and `tools_file` by `tools`, in place.

    Passes over whatever `validate` has found to be no entry or message, so that all that is wrong with a
    file can be said at once.
    """
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict):
            yield from _resolve_tools(entry, (*path, index), includes)
            yield from _resolve_messages(entry.get("messages"), (*path, index, "messages"), includes)
        else:
            yield from _resolve_messages(entry, (*path, index), includes)


def _resolve_tools(entry: dict[str, Any], path: JsonPath, includes: Includes) -> Iterator[Finding]:
    name = entry.get("tools_file")
    if not is_file_name(name):
        return
    try:
        found = includes.tools(name)
    except UnreadableError as error:
        yield Finding((*path, "tools_file"), f"{includes.shown(name)}: {error}")
        return
    entry["tools"] = found.tools
    for item in includes.untold(name):
        message = f"{includes.shown(name)}{item.place}: {item.message}{item.where}"
        yield Finding((*path, "tools_file"), message)


def _resolve_messages(messages: Any, path: JsonPath, includes: Includes) -> Iterator[Finding]:
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        name = message.get("content_file") if isinstance(message, dict) else None
        if not is_file_name(name):
            continue
        try:
            content = includes.text(name)
        except UnreadableError as error:
            yield Finding((*path, index, "content_file"), f"{includes.shown(name)}: {error}")
            continue
        # In the place of the file's name: the order of a message's keys can reach a template.
        items = [("content", content) if key == "content_file" else (key, v) for key, v in message.items()]
        message.clear()
        message.update(items)


def _parse_tools(text: str) -> ToolsFile:
    parsed = parse(text)
    findings = list(tools_findings(parsed.value, ())) if parsed.is_complete else []
    errors = to_errors(text, parsed.problems, findings)
    return ToolsFile([] if errors else parsed.value, tuple(errors))
