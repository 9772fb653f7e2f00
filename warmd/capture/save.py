"""Adds a captured entry to the prompts file, or replaces one in it: whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warmd.capture.entry_json import EntryJson, make_entry_json
from warmd.capture.errors import NotSavedError
from warmd.capture.files import Journal, file_name, journal
from warmd.capture.insert import add_entry, replace_entry
from warmd.capture.shared import Captured
from warmd.errors import UsageError
from warmd.explain.structure import written
from warmd.files.atomic import file_mode, write_atomically
from warmd.prompts.document import Document, Entry
from warmd.prompts.files import BOM, UnreadableError, decode, read_file
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
        left: Files that the entry named before and none does any more, as it named them: they stay.
        warnings: What makes the entry other than the requests.
    """

    path: Path
    files: tuple[str, ...]
    is_replaced: bool
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
    old, own, others = _replaced(text, index)
    entry = _entry_json(path, name, captured, old, lambda file: _is_own(path, file, own, others))
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
    named = (*others, *entry.files)
    left = tuple(file for file in own if not _is_among(path, file, named))
    return Saved(path, tuple(entry.files), index is not None, left, warnings)


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


def _replaced(text: str, index: int | None) -> tuple[Any, Collection[str], Collection[str]]:
    """The entry that is to be replaced, None where there is none; the files that it names, and the others."""
    entries, _ = entries_of(parse(text).value)
    others = [entry for number, entry in enumerate(entries) if number != index]
    old = None if index is None else entries[index]
    return old, _named_files([] if old is None else [old]), _named_files(others)


def _named_files(entries: list[Any]) -> Collection[str]:
    """The files that entries of a valid document name, each once, as they name them."""
    names: list[str | None] = []
    for entry in entries:
        messages = entry["messages"] if isinstance(entry, Mapping) else entry
        names += [message.get("content_file") for message in messages]
        names += [entry.get("tools_file")] if isinstance(entry, Mapping) else []
    return dict.fromkeys(name for name in names if name is not None)


def _is_among(path: Path, file: str, names: Collection[str]) -> bool:
    """True for a file that one of these names leads to, in whatever spelling and by whatever links."""
    place = path.parent / Path(file).expanduser()
    return any(_is_same(place, path.parent / Path(name).expanduser()) for name in names)


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        # One of them is not there, or no more.
        return False


def _is_own(path: Path, file: str, own: Collection[str], others: Collection[str]) -> bool:
    """True for what goes with the replaced entry and may be overwritten: any other file is somebody's."""
    place = path.parent / file
    # What is behind a link may be anything, anywhere.
    is_plain = place.is_file() and not place.is_symlink() and not place.parent.is_symlink()
    return is_plain and _is_among(path, file, own) and not _is_among(path, file, others)


def _entry_json(
    path: Path, name: str, captured: Captured, old: Any, is_own: Callable[[str], bool]
) -> EntryJson:
    picked: set[str] = set()

    def pick(folder: str, suffix: str) -> str:
        for number in range(1, _MOST_NAMES):
            file = file_name(folder, name, number, suffix)
            if file not in picked and (not os.path.lexists(path.parent / file) or is_own(file)):
                picked.add(file)
                return file
        raise NotSavedError(path, f"there are too many files like {file_name(folder, name, 1, suffix)}")

    return make_entry_json(name, captured, old, pick)


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
