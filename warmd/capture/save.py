"""Adds a captured entry to the prompts file, or replaces one in it: whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warmd.capture.entry_json import EntryJson, make_entry_json
from warmd.capture.errors import NotSavedError
from warmd.capture.files import Journal, journal, safe_name
from warmd.capture.insert import add_entry, replace_entry
from warmd.capture.shared import Captured
from warmd.errors import UsageError
from warmd.explain.structure import written
from warmd.files.atomic import file_mode, write_atomically
from warmd.prompts.document import Document, Entry
from warmd.prompts.files import BOM, UnreadableError, decode, is_file_name, read_file
from warmd.prompts.jsontext import parse
from warmd.prompts.load import InvalidPromptsError, make_document
from warmd.prompts.validate import entries_of, validate

NEW_FILE = b'{\n  "prompts": []\n}\n'
TRIES = 3
"""How often to begin again when somebody else saves the file at the same time."""
_MOST_NAMES = 1000


@dataclass(frozen=True, slots=True)
class Saved:
    """What was done.

    Attributes:
        path: The prompts file.
        files: Those that the entry names, relative to it.
        is_replaced: An entry of this name was there.
        warnings: What makes the entry other than the requests.
    """

    path: Path
    files: tuple[str, ...]
    is_replaced: bool
    warnings: tuple[str, ...] = ()


class _ChangedError(Exception):
    """Somebody else has saved the file meanwhile."""


def check_name(path: Path, name: str, *, replace: bool, max_bytes: int) -> None:
    """Find out early whether `save` would refuse.

    Raises:
        UsageError: It is no name.
        NotSavedError: The file is invalid or cannot be written, or has an entry of this name.
    """
    for finding in validate([{"name": name, "messages": [{"role": "user", "content": ""}]}]):
        raise UsageError(f"NAME: {finding.message}")
    data = _read(path, max_bytes)
    _index(path, name, _load(path, NEW_FILE if data is None else data, max_bytes), replace=replace)
    if data is not None and not os.access(path, os.W_OK):
        raise NotSavedError(path, "the file is read-only")


def save(path: Path, name: str, captured: Captured, *, replace: bool, max_bytes: int) -> Saved:
    """Add the entry, or with `replace` put it in the place of the one with its name.

    Raises:
        UsageError: It is no name.
        NotSavedError: It cannot be done; every file is as it was.
    """
    path = path.expanduser().absolute()
    for _ in range(TRIES):
        try:
            check_name(path, name, replace=replace, max_bytes=max_bytes)
            return _save(path, name, captured, max_bytes, replace=replace)
        except _ChangedError:
            continue
        except OSError as error:
            raise NotSavedError(path, (error.strerror or type(error).__name__).lower()) from None
    raise NotSavedError(path, "somebody else keeps changing it")


def _save(path: Path, name: str, captured: Captured, max_bytes: int, *, replace: bool) -> Saved:
    found = _read(path, max_bytes)
    before = NEW_FILE if found is None else found
    document = _load(path, before, max_bytes)
    index = _index(path, name, document, replace=replace)
    text = decode(before)
    entry = _entry_json(path, name, captured, text, index)
    edit = add_entry(text, entry.value) if index is None else replace_entry(text, index, entry.value)
    mark = BOM if before.startswith(BOM) else b""
    after = mark + edit.apply(text).encode()
    if len(after) > max_bytes:
        raise NotSavedError(path, f"it would be larger than the {max_bytes:,} bytes that it may have")
    mode = file_mode(path)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with journal() as files:
        _write_includes(path, entry, mode, files)
        saved = _checked(path, name, captured, document, _load(path, after, max_bytes), index)
        write_atomically(path, after, mode, lambda: _check_unchanged(path, found, max_bytes))
    return Saved(path, tuple(entry.files), index is not None, saved)


def _read(path: Path, max_bytes: int) -> bytes | None:
    """What is in the file; None when there is none."""
    if not os.path.lexists(path):
        return None
    try:
        return read_file(path, max_bytes)
    except UnreadableError as error:
        raise NotSavedError(path, str(error)) from None


def _load(path: Path, data: bytes, max_bytes: int) -> Document:
    try:
        return make_document(path, data, max_bytes=max_bytes)
    except InvalidPromptsError as error:
        first = error.errors[0]
        place = f"line {first.line}: " if first.line is not None else ""
        raise NotSavedError(path, f"it is not valid ({place}{first.message})") from None


def _index(path: Path, name: str, document: Document, *, replace: bool) -> int | None:
    index = next((entry.index for entry in document.entries if entry.name == name), None)
    if index is not None and not replace:
        raise NotSavedError(path, f"it has an entry {name!r} already; --replace replaces it")
    return index


def _entry_json(path: Path, name: str, captured: Captured, text: str, index: int | None) -> EntryJson:
    entries, _ = entries_of(parse(text).value)
    old = entries[index] if index is not None else None
    others = _named_files(path, [entry for entry in entries if entry is not old])
    own = _named_files(path, [old]) - others
    picked: set[str] = set()

    def pick(folder: str, suffix: str) -> str:
        stem = safe_name(name)
        for number in range(1, _MOST_NAMES):
            file = f"{folder}/{stem}{'' if number == 1 else f'-{number}'}{suffix}"
            place = path.parent / file
            # A file that only the replaced entry names is replaced with it; any other is somebody's.
            is_free = not os.path.lexists(place) or Path(os.path.realpath(place)) in own
            if file not in picked and is_free:
                picked.add(file)
                return file
        raise NotSavedError(path, f"there are too many files like {folder}/{stem}{suffix}")

    return make_entry_json(name, captured, old, pick)


def _named_files(path: Path, entries: list[Any]) -> set[Path]:
    """The files that entries name."""
    names: list[Any] = []
    for entry in entries:
        messages = entry.get("messages", []) if isinstance(entry, Mapping) else entry or []
        names += [entry.get("tools_file")] if isinstance(entry, Mapping) else []
        names += [message.get("content_file") for message in messages]
    return {
        Path(os.path.realpath(path.parent / Path(name).expanduser())) for name in names if is_file_name(name)
    }


def _write_includes(path: Path, entry: EntryJson, mode: int, files: Journal) -> None:
    for file, data in entry.files.items():
        files.write(path.parent / file, data, mode & 0o666)


def _check_unchanged(path: Path, before: bytes | None, max_bytes: int) -> None:
    if _read(path, max_bytes) != before:
        raise _ChangedError


def _checked(
    path: Path, name: str, captured: Captured, old: Document, new: Document, index: int | None
) -> tuple[str, ...]:
    """Prove that the file would say just what was captured, and of everything else what it said; warnings."""
    (entry,) = [item for item in new.entries if item.name == name]
    others = [(item.name, item.digest, item.priority) for item in new.entries if item is not entry]
    before = [(item.name, item.digest, item.priority) for item in old.entries if item.index != index]
    same = [written(entry.messages), written(entry.tools)] == [
        written(captured.messages),
        written(captured.tools),
    ]
    if others != before or not same:
        raise NotSavedError(path, "the file would not say what was captured")
    return _added_arguments(entry, captured)


def _added_arguments(entry: Entry, captured: Captured) -> tuple[str, ...]:
    added = [key for key in entry.chat_template_kwargs if key not in captured.chat_template_kwargs]
    if not added:
        return ()
    return (
        f"the file's defaults add chat_template_kwargs that the requests do not have: {', '.join(added)}",
    )
