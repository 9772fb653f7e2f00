"""`warmd store`: what is on disk, without a daemon."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warmd.commands.store_report import KEY_DIGITS, print_records
from warmd.config import load_settings
from warmd.control.client import ask
from warmd.disk.bounds import expired, most, parse_max_bytes, surplus
from warmd.disk.errors import DamagedError, LockedError
from warmd.disk.files import Files
from warmd.disk.place import store_folder
from warmd.disk.record import Record
from warmd.disk.shelf import Shelf
from warmd.disk.writer import marking_lag
from warmd.errors import WarmdError
from warmd.memory.size import format_size
from warmd.settings import Settings
from warmd.text import counted

DESCRIPTION = """\
The state of warm entries on disk, in the folder of [store] path. It works with and without a daemon.
Exit code 0: done. 1: the folder cannot be used, or (verify) a file is not what was written. 2: usage."""
_ACTIONS = {
    "list": "show every file with its size",
    "verify": "read every file and compare it with its checksum",
    "prune": "remove what no entry has wanted within [store] grace, and what is beyond max_bytes",
    "clear": "remove everything; not while a daemon is running that writes there",
}


STATUS_SECONDS = 5.0
"""What a daemon gets to say whether the folder is its own."""


class StoreError(WarmdError):
    """The folder cannot be used.

    Args:
        files: The folder.
        reason: Why.
    """

    def __init__(self, files: Files, reason: str) -> None:
        super().__init__(f"{files.folder}: {reason}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what it takes."""
    actions = parser.add_subparsers(
        title="actions", metavar="ACTION", required=True, dest="action", help=", ".join(_ACTIONS)
    )
    for name, meaning in _ACTIONS.items():
        action = actions.add_parser(name, help=meaning, description=meaning, allow_abbrev=False)
        action.add_argument("--json", action="store_true", help="print JSON, in bytes and seconds")


def run(args: argparse.Namespace) -> int:
    """Do what was asked for."""
    settings = load_settings()
    shelf = Shelf(Files(store_folder(settings.store)))
    try:
        damaged = shelf.refresh()
        if args.action == "list":
            return _list(shelf, damaged, _lag(shelf, settings), as_json=args.json)
        if args.action == "verify":
            return _verify(shelf, damaged, as_json=args.json)
        if args.action == "prune":
            return _prune(shelf, settings, as_json=args.json)
        return _clear(shelf, as_json=args.json)
    except OSError as error:
        raise StoreError(shelf.files, error.strerror or type(error).__name__) from None


def _lag(shelf: Shelf, settings: Settings) -> float | None:
    """How old a file's mark may be although it is wanted; None where no daemon keeps this folder."""
    try:
        disk = ask("status", timeout=STATUS_SECONDS)["disk"]
    except WarmdError:
        return None
    is_kept = disk is not None and Path(disk["path"]) == shelf.files.folder
    return marking_lag(settings.store.grace) if is_kept else None


def _list(shelf: Shelf, damaged: Sequence[DamagedError], lag: float | None, *, as_json: bool) -> int:
    records = sorted(shelf.records, key=lambda record: (record.model, record.name))
    if as_json:
        _print_json(
            path=str(shelf.files.folder),
            bytes=shelf.statistics().nbytes,
            wanted_lag_s=lag,
            files=[_record_json(record) for record in records],
            damaged=_damaged_json(damaged),
        )
        return 0
    print_records(records, shelf.files.folder, time.time(), lag)
    _print_damaged(damaged)
    return 0


def _verify(shelf: Shelf, damaged: Sequence[DamagedError], *, as_json: bool) -> int:
    errors = list(damaged)
    for record in shelf.records:
        try:
            shelf.read(record)
        except DamagedError as error:
            errors.append(error)
        except FileNotFoundError:
            # A daemon has removed it since.
            continue
    if as_json:
        _print_json(ok=not errors, files=len(shelf.records), damaged=_damaged_json(errors))
    else:
        whole = shelf.statistics().files - (len(errors) - len(damaged))
        print(f"{shelf.files.folder}: {counted(whole, 'file')} as written, {len(errors)} not")
        _print_damaged(errors)
    return 1 if errors else 0


def _prune(shelf: Shelf, settings: Settings, *, as_json: bool) -> int:
    store = settings.store
    if not shelf.files.folder.exists():
        return _print_removed([], as_json=as_json)
    try:
        with shelf.files.locked():
            # What was damaged or half-written serves nobody.
            shelf.remove([item.name for item in shelf.damaged])
            bound = most(parse_max_bytes(store.max_bytes), shelf.files.free(), shelf.statistics().nbytes)
            gone = expired(shelf.records, (), time.time() - store.grace)
            shelf.remove(record.name for record in gone)
            beyond = surplus(shelf.records, (), bound)
            shelf.remove(record.name for record in beyond)
    except LockedError:
        reason = "a daemon is running here, which knows what is wanted and does this by itself"
        raise StoreError(shelf.files, reason) from None
    return _print_removed([*gone, *beyond], as_json=as_json)


def _clear(shelf: Shelf, *, as_json: bool) -> int:
    records = shelf.records
    if not shelf.files.folder.exists():
        return _print_removed([], as_json=as_json)
    try:
        with shelf.files.locked():
            shelf.remove([*(record.name for record in records), *(item.name for item in shelf.damaged)])
    except LockedError:
        reason = "a daemon is running here: stop it first (`warmd rewarm` computes anew what it holds)"
        raise StoreError(shelf.files, reason) from None
    return _print_removed(records, as_json=as_json)


# --- output ------------------------------------------------------------------------------------------


def _record_json(record: Record) -> dict[str, Any]:
    return {
        "file": record.name,
        "prefix": record.name[:KEY_DIGITS],
        "start": record.start,
        "end": record.end,
        "bytes": record.nbytes,
        "wanted_at": record.wanted_at,
        "model": record.model,
        "identity": record.identity_digest[:KEY_DIGITS],
    }


def _damaged_json(errors: Sequence[DamagedError]) -> list[dict[str, str]]:
    return [{"file": error.name, "reason": error.reason} for error in errors]


def _print_json(**found: Any) -> None:
    print(json.dumps(found, indent=2))


def _print_damaged(errors: Sequence[DamagedError]) -> None:
    for error in errors:
        print(f"{error.name}: {error.reason}", file=sys.stderr)


def _print_removed(records: Sequence[Record], *, as_json: bool) -> int:
    size = sum(record.nbytes for record in records)
    if as_json:
        _print_json(removed=[record.name for record in records], bytes=size)
    else:
        print(f"removed {counted(len(records), 'file')}, {format_size(size)}")
    return 0
