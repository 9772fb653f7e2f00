"""The writer: bounded, alone, and never the end of anything."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.disk.made import IDENTITY, Told, feed, make_piece, put
from tests.patience import PATIENCE, wait_until
from warmd.disk.errors import NotNowError
from warmd.disk.files import Files
from warmd.disk.identity import digest_of
from warmd.disk.record import shortened
from warmd.disk.shelf import Shelf
from warmd.disk.writer import Piece, Wanted, Writer, WriterSettings
from warmd.radix import pack

DAY = 24 * 3600.0
A, B, C = (make_piece([number, 1], size=1000, now=time.time()) for number in range(3))
SIZE = A.record.nbytes


class Disk:
    """A folder, and writers for it."""

    def __init__(self, folder: Path) -> None:
        self.files = Files(folder)
        self.told = Told()
        self.writers: list[Writer] = []

    def write(
        self,
        *pieces: Piece,
        files: Files | None = None,
        wanted: Sequence[Sequence[int]] = (),
        max_bytes: int | None = 10**9,
        grace: float = 7 * DAY,
        rate: int = 10**9,
        next_piece: Callable[[], Piece | None] | None = None,
    ) -> Shelf:
        """Start a writer that has these to write, with these paths declared."""
        shelf = Shelf(files or self.files)
        settings = WriterSettings(max_bytes, grace, rate)
        writer = Writer(shelf, settings, next_piece or feed(pieces), self.told.tell, retry=0.05)
        writer.want(Wanted([pack(tokens) for tokens in wanted], digest_of(IDENTITY)))
        self.writers.append(writer)
        writer.start()
        return shelf

    def names(self) -> set[str]:
        """Files that are there."""
        return {item.name for item in self.files.listed()}

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something."""
        wait_until(condition)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """An empty one; its writers are stopped."""
    disk = Disk(tmp_path / "kv")
    yield disk
    for writer in disk.writers:
        writer.stop()


def all_of(*pieces: Piece) -> set[str]:
    return {piece.record.name for piece in pieces}


def test_all_is_written_and_can_be_read(disk: Disk) -> None:
    shelf = disk.write(A, B)
    disk.until(lambda: disk.told.names() == ["store.written", "store.written"])
    assert [A.record, B.record] == list(shelf.records)
    assert A.content == shelf.read(A.record)
    assert all_of(A, B) == disk.names()


def test_nothing_is_touched_until_it_is_known_what_is_declared(disk: Disk) -> None:
    writer = Writer(Shelf(disk.files), WriterSettings(), feed([A]), disk.told.tell)
    writer.start()
    writer.wake()
    writer.stop()
    assert not disk.files.folder.exists()


def test_no_more_is_written_a_second_than_is_allowed(disk: Disk) -> None:
    began = time.monotonic()
    disk.write(A, B, C, rate=SIZE * 10)
    disk.until(lambda: disk.names() == all_of(A, B, C))
    assert time.monotonic() - began >= 0.2


# --- what goes -----------------------------------------------------------------------------------------


def test_what_nobody_has_wanted_for_long_goes(disk: Disk) -> None:
    old = make_piece([7, 7], now=time.time() - 8 * DAY)
    wanted = make_piece([8, 8], now=time.time() - 8 * DAY)
    recent = make_piece([9, 9], now=time.time() - 6 * DAY)
    for piece in (old, wanted, recent):
        put(disk.files, piece)
    disk.write(wanted=[[8, 8, 8]])
    disk.until(lambda: "store.pruned" in disk.told.names())
    assert all_of(wanted, recent) == disk.names()
    (pruned,) = disk.told.fields("store.pruned")
    assert (1, old.record.nbytes) == (pruned["files"], pruned["bytes"])
    # Seven days from now, not from when it was written.
    assert (disk.files.folder / wanted.record.name).stat().st_mtime > time.time() - DAY


def test_beyond_the_bound_the_oldest_goes_first(disk: Disk) -> None:
    old, older = (make_piece([7, age], now=time.time() - age * DAY, size=1000) for age in (1, 2))
    for piece in (old, older):
        put(disk.files, piece)
    disk.write(A, max_bytes=2 * SIZE + 10, wanted=[[0, 1]])
    disk.until(lambda: disk.names() == all_of(A, old))


def test_what_is_declared_makes_room_for_nothing_and_that_is_said_once(disk: Disk) -> None:
    put(disk.files, A)
    tries: list[Piece] = []

    def next_piece() -> Piece:
        tries.append(B)
        return B

    disk.write(next_piece=next_piece, max_bytes=SIZE + 10, wanted=[[0, 1], [1, 1]])
    disk.until(lambda: "store.failed" in disk.told.names())
    # Each but the last would have been told of by now.
    disk.until(lambda: len(tries) > 4)
    assert all_of(A) == disk.names()
    (failed,) = disk.told.fields("store.failed")
    assert failed["reason"] == f"[store] max_bytes ({SIZE + 10} bytes) does not hold all entries"


def test_what_turned_out_wrong_is_removed(disk: Disk) -> None:
    put(disk.files, A)
    disk.write(wanted=[[0, 1]])
    disk.writers[0].doom({A.record.name: None})
    disk.until(lambda: disk.names() == set())


def test_what_turned_out_wrong_is_removed_at_once_also_while_a_piece_is_waited_for(disk: Disk) -> None:
    put(disk.files, A)
    asked, gate = threading.Event(), threading.Event()

    def next_piece() -> Piece | None:
        asked.set()
        gate.wait(PATIENCE)
        return None

    disk.write(wanted=[[0, 1]], next_piece=next_piece)
    assert asked.wait(PATIENCE)
    disk.writers[0].doom({A.record.name: None})
    disk.writers[0].remove_doomed()
    assert disk.names() == set()
    gate.set()


def test_a_piece_that_turned_out_wrong_before_it_was_written_does_not_stay(disk: Disk) -> None:
    pieces = [A, B]

    def next_piece() -> Piece | None:
        if len(pieces) == 2:
            disk.writers[0].doom({A.record.name: None})
        return pieces.pop(0) if pieces else None

    disk.writers = [Writer(Shelf(disk.files), WriterSettings(10**9), next_piece, disk.told.tell, retry=0.05)]
    disk.writers[0].want(Wanted([], digest_of(IDENTITY)))
    disk.writers[0].start()
    disk.until(lambda: disk.told.names() == ["store.written"])
    assert disk.names() == all_of(B)


def test_what_could_not_be_removed_is_tried_again(disk: Disk) -> None:
    class Stuck(Files):
        left = 1

        def remove(self, name: str) -> None:
            self.left -= 1
            if self.left >= 0:
                raise OSError(errno.EIO, "stuck")
            super().remove(name)

    put(disk.files, A)
    disk.write(files=Stuck(disk.files.folder), wanted=[[0, 1]])
    disk.writers[0].doom({A.record.name: None})
    disk.until(lambda: disk.names() == set())
    assert [failed["reason"] for failed in disk.told.fields("store.failed")] == ["stuck"]


def test_what_is_good_of_a_file_that_turned_out_wrong_stays_from_then_on(disk: Disk) -> None:
    piece = make_piece([1, 2, 3, 4, 5], 1, has_snapshot=True, now=time.time())
    rest = shortened(piece.record, 3)
    put(disk.files, piece)
    shelf = disk.write(wanted=[[1, 2, 3]])
    shelf.forget([piece.record])
    disk.writers[0].doom({piece.record.name: rest})
    disk.until(lambda: disk.names() == {rest.name} and shelf.records == (rest,))
    other = Shelf(disk.files)
    assert ([], (rest,)) == (other.refresh(), other.records)
    assert piece.content == other.read(rest)
    # And still less of it, then nothing.
    less = shortened(rest, 2)
    disk.writers[0].doom({rest.name: less})
    disk.until(lambda: disk.names() == {less.name})
    disk.writers[0].doom({less.name: None})
    disk.until(lambda: disk.names() == set())


def test_what_turned_out_wrong_while_it_was_written_is_removed_whoever_is_first(disk: Disk) -> None:
    class Watched(Files):
        def write(self, name: str, content: bytes) -> None:
            disk.writers[0].doom({name: None})
            disk.writers[0].remove_doomed()
            super().write(name, content)
            written.set()

    written = threading.Event()
    disk.write(A, files=Watched(disk.files.folder))
    assert written.wait(PATIENCE)
    disk.until(lambda: disk.names() == set())


def test_who_does_not_write_removes_nothing(disk: Disk) -> None:
    put(disk.files, A)
    writer = Writer(Shelf(disk.files), WriterSettings(), feed([]), disk.told.tell)
    writer.doom({A.record.name: None})
    writer.remove_doomed()
    assert disk.names() == all_of(A)


def test_a_file_that_nobody_can_use_is_removed_and_that_of_a_later_version_is_not(disk: Disk) -> None:
    cut, later = make_piece([7]), make_piece([8])
    for piece in (cut, later):
        put(disk.files, piece)
    (disk.files.folder / cut.record.name).write_bytes(cut.content[:50])
    content = later.content.replace(b'\\"format\\": 1', b'\\"format\\": 2')
    assert content != later.content
    (disk.files.folder / later.record.name).write_bytes(content)
    disk.write()
    disk.until(lambda: disk.names() == all_of(later))
    reasons = {"it is cut short", "it is of another version of warmd"}
    assert reasons == {rejected["reason"] for rejected in disk.told.fields("store.rejected")}


# --- what can go wrong -----------------------------------------------------------------------------------


class Broken(Files):
    """A disk that refuses, until it is well again."""

    number: int | None = errno.ENOSPC
    tries = 0

    def fill(self, file: int, content: bytes) -> None:
        self.tries += 1
        if self.number is not None:
            raise OSError(self.number, os.strerror(self.number))
        super().fill(file, content)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EACCES, errno.EDQUOT])
def test_a_disk_that_refuses_is_told_once_and_tried_again(disk: Disk, number: int) -> None:
    broken = Broken(disk.files.folder)
    broken.number = number
    disk.write(files=broken, next_piece=lambda: None if disk.names() else A)
    disk.until(lambda: "store.failed" in disk.told.names())
    assert os.strerror(number) == disk.told.tell.problem
    disk.until(lambda: broken.tries > 4)
    assert [{"operation": "write", "reason": os.strerror(number)}] == disk.told.fields("store.failed")
    assert disk.names() == set()
    # Between two tries.
    disk.until(lambda: not list(disk.files.folder.glob(".writing*")))
    broken.number = None
    disk.until(lambda: disk.names() == all_of(A))
    disk.until(lambda: disk.told.tell.problem is None)


def test_a_folder_that_vanishes_is_made_again(disk: Disk) -> None:
    ready = threading.Event()
    pieces = feed([A, B])

    def next_piece() -> Piece | None:
        piece = pieces()
        if piece is B:
            ready.wait(PATIENCE)
        return piece

    shelf = disk.write(next_piece=next_piece)
    disk.until(lambda: disk.names() == all_of(A))
    for path in disk.files.folder.iterdir():
        path.unlink()
    disk.files.folder.rmdir()
    ready.set()
    disk.until(lambda: disk.names() == all_of(B))
    disk.writers[0].wake()
    disk.until(lambda: [record.name for record in shelf.records] == [B.record.name])
    assert disk.told.fields("store.failed") == []


def test_a_file_in_the_folder_s_place_is_told(disk: Disk, tmp_path: Path) -> None:
    (tmp_path / "kv").write_text("in the way")
    disk.write(A)
    disk.until(lambda: "store.failed" in disk.told.names())
    assert disk.told.fields("store.failed") == [{"operation": "write", "reason": "File exists"}]


def test_of_two_writers_one_writes_and_the_other_waits_for_its_end(disk: Disk) -> None:
    disk.write(A)
    disk.until(lambda: disk.names() == all_of(A))
    disk.write(next_piece=lambda: None if len(disk.names()) == 2 else B)
    disk.until(lambda: "store.failed" in disk.told.names())
    reason = "another process writes to this folder, which this one only reads"
    assert [{"operation": "write", "reason": reason}] == disk.told.fields("store.failed")
    assert all_of(A) == disk.names()
    disk.writers[0].stop()
    disk.until(lambda: disk.names() == all_of(A, B))


def failing_with(*errors: Exception) -> Callable[[], Piece | None]:
    """Makes a piece once it has raised these."""
    left: list[Piece | Exception] = [*errors, A]

    def next_piece() -> Piece | None:
        piece = left.pop(0) if left else None
        if isinstance(piece, Exception):
            raise piece
        return piece

    return next_piece


def test_what_may_happen_at_any_time_is_tried_again_without_a_word(disk: Disk) -> None:
    disk.write(next_piece=failing_with(NotNowError(), NotNowError()))
    disk.until(lambda: disk.told.names() == ["store.written"])
    assert all_of(A) == disk.names()


def test_whatever_else_making_a_piece_raises_is_told_once_and_tried_again(disk: Disk) -> None:
    disk.write(next_piece=failing_with(RuntimeError("zanzibar"), RuntimeError("zanzibar")))
    disk.until(lambda: disk.told.names() == ["store.failed", "store.written"])
    assert disk.told.fields("store.failed") == [{"operation": "write", "reason": "RuntimeError"}]
    assert all_of(A) == disk.names()
    disk.until(lambda: disk.told.tell.problem is None)
