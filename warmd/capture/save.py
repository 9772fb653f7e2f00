"""Adds a captured entry to the prompts file, or replaces one in it: whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warmd.capture.entry_json import EntryJson, make_entry_json
from warmd.capture.errors import NotSavedError
from warmd.capture.files import Journal, file_name, is_given, journal
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
        removed: Files that the entry had before and nothing names any more, relative to the prompts file.
        left: The same, but not called as `capture` calls its files: they stay.
        warnings: What makes the entry other than the requests.
    """

    path: Path
    files: tuple[str, ...]
    is_replaced: bool
    removed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
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
    old, own = _replaced(path, text, index)
    entry = _entry_json(path, name, captured, old, own)
    edit = add_entry(text, entry.value) if index is None else replace_entry(text, index, entry.value)
    mark = BOM if before.startswith(BOM) else b""
    after = mark + edit.apply(text).encode()
    if len(after) > max_bytes:
        raise NotSavedError(path, f"it would be larger than the {max_bytes:,} bytes that it may have")
    mode = file_mode(path)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with journal() as files:
        _write_includes(path, entry, mode, files)
        warnings = _checked(path, name, captured, document, _load(path, after, max_bytes), index)
        write_atomically(path, after, mode, lambda: _check_unchanged(path, found, max_bytes))
    removed, left = _remove_unnamed(path.parent, name, own, entry.files)
    return Saved(path, tuple(entry.files), index is not None, removed, left, warnings)


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


def _replaced(path: Path, text: str, index: int | None) -> tuple[Any, set[Path]]:
    """The entry that is to be replaced, None where there is none, and the files that only it names."""
    if index is None:
        return None, set()
    entries, _ = entries_of(parse(text).value)
    others = [entry for number, entry in enumerate(entries) if number != index]
    return entries[index], _named_files(path, [entries[index]]) - _named_files(path, others)


def _entry_json(path: Path, name: str, captured: Captured, old: Any, own: set[Path]) -> EntryJson:
    picked: set[str] = set()

    def pick(folder: str, suffix: str) -> str:
        for number in range(1, _MOST_NAMES):
            file = file_name(folder, name, number, suffix)
            place = path.parent / file
            # A file that only the replaced entry names is replaced with it; any other is somebody's.
            is_free = not os.path.lexists(place) or Path(os.path.realpath(place)) in own
            if file not in picked and is_free:
                picked.add(file)
                return file
        raise NotSavedError(path, f"there are too many files like {file_name(folder, name, 1, suffix)}")

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


def _remove_unnamed(
    folder: Path, name: str, before: set[Path], files: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Remove what the replaced entry named and nothing names any more, where it is called as we call files.

    Returns:
        What was removed, and what stays, relative to the folder where it is in there.
    """
    root = Path(os.path.realpath(folder))
    removed: list[str] = []
    left: list[str] = []
    for place in sorted(before - {Path(os.path.realpath(folder / file)) for file in files}):
        shown = str(place.relative_to(root)) if place.is_relative_to(root) else str(place)
        is_gone = False
        if is_given(shown, name):
            with suppress(OSError):
                place.unlink()
                is_gone = True
        (removed if is_gone else left).append(shown)
    return tuple(removed), tuple(left)


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
