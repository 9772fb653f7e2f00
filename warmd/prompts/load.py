"""From a file to a `Document`, whole or not at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warmd.errors import WarmdError
from warmd.prompts.document import Document, Entry, FileError
from warmd.prompts.files import UnreadableError, decode, read_file
from warmd.prompts.findings import Finding, to_errors
from warmd.prompts.includes import Includes, resolve
from warmd.prompts.jsontext import parse
from warmd.prompts.validate import IMAGE_TYPES, entries_of, validate

MAX_BYTES = 64 << 20


class InvalidPromptsError(WarmdError):
    """The file cannot be accepted.

    Attributes:
        errors: Everything that is wrong with it, in the file's order.
        sha256: Of the bytes that were read; None when nothing could be read.
        files: Every file that took part, to be watched.
    """

    def __init__(
        self, path: Path, errors: Sequence[FileError], sha256: str | None, files: tuple[Path, ...]
    ) -> None:
        first, more = errors[0], len(errors) - 1
        place = f":{first.line}:{first.column}" if first.line is not None else ""
        also = f" (and {more} more)" if more else ""
        super().__init__(f"{path}{place}: {first.message}{also}")
        self.errors = tuple(errors)
        self.sha256 = sha256
        self.files = files


def load_document(path: Path, *, max_bytes: int = MAX_BYTES) -> Document:
    """Read, check and complete a warm-prompts file.

    The bytes are read once: what is hashed is what is parsed.

    Raises:
        InvalidPromptsError: Something is wrong; it says everything that is.
    """
    path = path.expanduser().absolute()
    try:
        data = read_file(path, max_bytes)
    except UnreadableError as error:
        raise InvalidPromptsError(path, [FileError(None, None, "$", str(error))], None, (path,)) from None
    return make_document(path, data, max_bytes=max_bytes)


def make_document(path: Path, data: bytes, *, max_bytes: int = MAX_BYTES) -> Document:
    """Check and complete what is in a warm-prompts file, or would be.

    Args:
        path: The file, absolute: files that it names are looked for beside it.
        data: Its content.
        max_bytes: The most that an included file may have.

    Raises:
        InvalidPromptsError: Something is wrong; it says everything that is.
    """
    sha256 = hashlib.sha256(data).hexdigest()
    includes = Includes(path.parent, max_bytes)
    value, errors = _read(data, includes)
    files = (path, *(file for file in includes.files if file != path))
    if errors:
        raise InvalidPromptsError(path, errors, sha256, files)
    digest = hashlib.sha256(data)
    includes.update(digest)
    return Document(path, sha256, digest.hexdigest(), _entries(value), files)


def _read(data: bytes, includes: Includes) -> tuple[Any, list[FileError]]:
    """The completed JSON value and everything that is wrong."""
    try:
        text = decode(data)
    except UnreadableError as error:
        return None, [FileError(None, None, "$", str(error))]
    parsed = parse(text)
    findings: list[Finding] = []
    if parsed.is_complete:
        findings = [*validate(parsed.value), *resolve(*entries_of(parsed.value), includes)]
    return parsed.value, to_errors(text, parsed.problems, findings)


def _entries(value: Any) -> tuple[Entry, ...]:
    defaults = value.get("defaults", {}) if isinstance(value, dict) else {}
    return tuple(_entry(item, index, defaults) for index, item in enumerate(entries_of(value)[0]))


def _entry(item: Any, index: int, defaults: dict[str, Any]) -> Entry:
    if isinstance(item, list):
        item = {"messages": item}
    messages, tools = item["messages"], item.get("tools")
    kwargs = {**defaults.get("chat_template_kwargs", {}), **item.get("chat_template_kwargs", {})}
    model = item.get("model")
    return Entry(
        name=item.get("name", f"#{index}"),
        index=index,
        messages=tuple(messages),
        tools=tuple(tools) if tools is not None else None,
        chat_template_kwargs=kwargs,
        priority=item.get("priority", defaults.get("priority", 0)),
        digest=_digest([messages, tools, kwargs, *([model] if model else [])]),
        has_images=any(map(_has_image, messages)),
        model=model,
    )


def _digest(value: Any) -> str:
    # Keys keep their order: it decides the tokens.
    return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()


def _has_image(message: dict[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(part["type"] in IMAGE_TYPES for part in content)
