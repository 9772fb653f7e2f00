"""The index is what the files say, whoever comes, goes or spoils them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.disk.made import make_piece, put
from warmd.disk.errors import DamagedError
from warmd.disk.files import Files
from warmd.disk.shelf import Shelf, ShelfStatistics


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A folder that does not exist yet."""
    return Files(tmp_path / "kv")


@pytest.fixture
def shelf(files: Files) -> Shelf:
    """An index of it."""
    return Shelf(files)


def test_without_a_folder_there_is_nothing(shelf: Shelf) -> None:
    assert shelf.refresh() == []
    assert ShelfStatistics(0, 0) == shelf.statistics()


def test_the_index_is_made_from_the_files_alone(files: Files, shelf: Shelf) -> None:
    records = [put(files, make_piece([number, 1])) for number in range(3)]
    (files.folder / "notes.txt").write_text("not ours")
    (files.folder / ".writing-x").write_text("left by a dead process")
    assert shelf.refresh() == []
    assert records == sorted(shelf.records, key=lambda record: list(record.own))
    assert ShelfStatistics(3, sum(record.nbytes for record in records)) == shelf.statistics()


def test_what_others_write_and_remove_is_noticed(files: Files, shelf: Shelf) -> None:
    one, two = put(files, make_piece([1])), make_piece([2])
    shelf.refresh()
    files.remove(one.name)
    put(files, two)
    assert (shelf.refresh(), shelf.removals) == ([], 1)
    assert [two.record] == list(shelf.records)


def test_a_file_that_cannot_be_used_is_told_once(files: Files, shelf: Shelf) -> None:
    piece = make_piece([1, 2])
    put(files, piece)
    (files.folder / piece.record.name).write_bytes(piece.content[:-1])
    assert [error.reason for error in shelf.refresh()] == ["it is cut short"]
    assert (shelf.refresh(), shelf.records) == ([], ())
    put(files, piece)
    assert ([], (piece.record,)) == (shelf.refresh(), shelf.records)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_file_that_may_not_be_read_is_told(files: Files, shelf: Shelf) -> None:
    record = put(files, make_piece([1]))
    (files.folder / record.name).chmod(0)
    assert [error.reason for error in shelf.refresh()] == ["it cannot be read: Permission denied"]


def test_content_is_read_only_as_it_was_written(files: Files, shelf: Shelf) -> None:
    piece = make_piece([1, 2])
    record = put(files, piece)
    assert piece.content == shelf.read(record)
    (files.folder / record.name).write_bytes(piece.content[:-1] + b"x")
    with pytest.raises(DamagedError):
        shelf.read(record)


def test_what_is_forgotten_stays_so_until_it_is_written_anew(files: Files, shelf: Shelf) -> None:
    record = put(files, make_piece([1]))
    shelf.refresh()
    shelf.forget([record])
    assert (shelf.refresh(), shelf.records) == ([], ())
    shelf.remove([record.name])
    assert not (files.folder / record.name).exists()
    put(files, make_piece([1]))
    shelf.refresh()
    assert (record,) == shelf.records


def test_a_wanted_file_is_marked_as_such(files: Files, shelf: Shelf) -> None:
    record = put(files, make_piece([1]))
    shelf.refresh()
    shelf.touch([record], 2e9)
    assert [record.wanted_at for record in shelf.records] == [2e9]
    assert (files.folder / record.name).stat().st_mtime == 2e9
