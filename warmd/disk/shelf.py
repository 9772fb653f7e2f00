"""The index: what the files of a folder say of themselves, kept in memory and looked after."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from warmd.disk.errors import DamagedError
from warmd.disk.files import Files, Listed
from warmd.disk.record import Record, check_content, read_record


@dataclass(frozen=True, slots=True)
class ShelfStatistics:
    """What is on disk: how many files, and their bytes."""

    files: int
    nbytes: int


class Shelf:
    """The files of a folder. Safe to use from several threads.

    It can be made anew from the files alone at any time, and is: they are all the truth there is.

    Args:
        files: The folder.
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        self._lock = threading.Lock()
        self._records: dict[str, Record] = {}
        self._damaged: dict[str, Listed] = {}
        self.removals = 0
        """Goes up when something is there no more."""

    @property
    def damaged(self) -> tuple[Listed, ...]:
        """Files that cannot be used."""
        with self._lock:
            return tuple(self._damaged.values())

    @property
    def records(self) -> tuple[Record, ...]:
        """Every file that can be used, as of the last look."""
        with self._lock:
            return tuple(self._records.values())

    def statistics(self) -> ShelfStatistics:
        """How much there is."""
        records = self.records
        return ShelfStatistics(len(records), sum(record.nbytes for record in records))

    def refresh(self) -> list[DamagedError]:
        """Look at the folder: take in new files, forget those that are gone.

        Returns:
            What is wrong with files that cannot be used, each told once.

        Raises:
            OSError: The folder cannot be looked at.
        """
        listed = {item.name: item for item in self.files.listed()}
        with self._lock:
            known, damaged = dict(self._records), dict(self._damaged)
        found: dict[str, Record] = {}
        errors: list[DamagedError] = []
        for name, item in listed.items():
            old = known.get(name)
            if old is not None and old.nbytes == item.nbytes:
                found[name] = old if old.wanted_at == item.changed_at else _as_of(old, item.changed_at)
            elif name not in damaged or damaged[name].nbytes != item.nbytes:
                try:
                    found[name] = read_record(self.files.folder / name, item.changed_at)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    reason = f"it cannot be read: {error.strerror or type(error).__name__}"
                    errors.append(DamagedError(name, reason, is_hopeless=False))
                except DamagedError as error:
                    errors.append(error)
        with self._lock:
            gone = [name for name in self._records if name not in listed]
            self._damaged = {name: item for name, item in self._damaged.items() if name in listed}
            self._damaged |= {error.name: listed[error.name] for error in errors}
            for name, record in found.items():
                # What came to be known as damaged in the meantime stays so.
                spoilt = self._damaged.get(name)
                if spoilt is None or (name in damaged and spoilt.nbytes != record.nbytes):
                    self._damaged.pop(name, None)
                    self._records[name] = record
            self._drop(gone)
        return errors

    def read(self, record: Record) -> bytes:
        """All of a file, as it was written.

        Raises:
            DamagedError: It is not what was written.
            OSError: It cannot be read, or is gone.
        """
        content = self.files.read(record.name)
        check_content(record.name, content)
        return content

    def add(self, record: Record) -> None:
        """A file has been written."""
        with self._lock:
            self._damaged.pop(record.name, None)
            self._records[record.name] = record

    def _drop(self, names: Iterable[str]) -> None:
        for name in names:
            if self._records.pop(name, None) is not None:
                self.removals += 1

    def forget(self, records: Iterable[Record]) -> None:
        """Use files no more, whether or not they can be removed."""
        with self._lock:
            for record in records:
                self._damaged[record.name] = Listed(record.name, record.nbytes, record.wanted_at)
                self._drop([record.name])

    def remove(self, names: Iterable[str]) -> None:
        """Remove files.

        Raises:
            OSError: The system refuses.
        """
        for name in names:
            self.files.remove(name)
            with self._lock:
                self._damaged.pop(name, None)
                self._drop([name])

    def replace(self, doomed: Mapping[str, Record | None]) -> None:
        """Remove files, or give them the names that say how much of them is still to be used.

        Args:
            doomed: For each name what stays of the file, or None.

        Raises:
            OSError: The system refuses.
        """
        self.remove(name for name, rest in doomed.items() if rest is None)
        for name, rest in doomed.items():
            if rest is not None and self.files.renamed(name, rest.name):
                with self._lock:
                    self._damaged.pop(name, None)
                    self._drop([name])
                    self._records[rest.name] = rest

    def touch(self, records: Iterable[Record], now: float) -> None:
        """Files are wanted now.

        Raises:
            OSError: The system refuses.
        """
        for record in records:
            self.files.touch(record.name, now)
            with self._lock:
                if record.name in self._records:
                    self._records[record.name] = _as_of(record, now)


def _as_of(record: Record, wanted_at: float) -> Record:
    return replace(record, wanted_at=wanted_at)
