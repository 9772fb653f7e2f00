"""Files that the warm-prompts file names: long texts and tool lists kept beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from warmd.prompts.files import UnreadableError, decode, parse_data, read_file
from warmd.prompts.jsontext import Path as JsonPath
from warmd.prompts.jsontext import line_and_column
from warmd.prompts.validate import Finding, is_file_name, tools_findings
from warmd.prompts.vocabulary import show_path


class Includes:
    """Reads each included file once, and remembers what was read.

    Args:
        base: The directory that relative names start from: that of the file that names them.
        max_bytes: Larger files are refused.

    Attributes:
        files: Every file that was asked for, readable or not, in order.
    """

    def __init__(self, base: Path, max_bytes: int) -> None:
        self._base = base
        self._max_bytes = max_bytes
        self._read: dict[Path, bytes | UnreadableError] = {}

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that was asked for."""
        return tuple(self._read)

    def text(self, name: str) -> str:
        """The text of a file.

        Raises:
            UnreadableError: It cannot be read, or is not UTF-8.
        """
        return decode(self._bytes(name))

    def tools(self, name: str) -> tuple[list[dict[str, Any]], list[str]]:
        """The tools in a file, and what is wrong with it, each with its own line and column.

        Raises:
            UnreadableError: It cannot be read, or is not UTF-8.
        """
        text, parsed = parse_data(self._bytes(name))
        wrong = [f"{_place(text, problem.offset)}: {problem.message}" for problem in parsed.problems]
        if parsed.is_complete:
            wrong += [
                f"{found.message} (at {show_path(found.path)})" for found in tools_findings(parsed.value, ())
            ]
        return (parsed.value if not wrong else []), wrong

    def update(self, digest: Any) -> None:
        """Add what was read to a hash, file by file."""
        for path, data in self._read.items():
            if isinstance(data, bytes):
                digest.update(str(path).encode("utf-8", "surrogateescape") + b"\0")
                digest.update(hashlib.sha256(data).digest())

    def _bytes(self, name: str) -> bytes:
        path = self._locate(name)
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
        entry["tools"], wrong = includes.tools(name)
    except UnreadableError as error:
        wrong = [str(error)]
    for message in wrong:
        yield Finding((*path, "tools_file"), f"{name}: {message}")


def _resolve_messages(messages: Any, path: JsonPath, includes: Includes) -> Iterator[Finding]:
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        name = message.get("content_file") if isinstance(message, dict) else None
        if not is_file_name(name):
            continue
        try:
            content = includes.text(name)
        except UnreadableError as error:
            yield Finding((*path, index, "content_file"), f"{name}: {error}")
            continue
        # In the place of the file's name: the order of a message's keys can reach a template.
        items = [("content", content) if key == "content_file" else (key, v) for key, v in message.items()]
        message.clear()
        message.update(items)


def _place(text: str, offset: int) -> str:
    line, column = line_and_column(text, offset)
    return f"line {line} column {column}"
