"""Reading ahead on a thread of its own."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path

import pytest

from tests.disk.made import make_piece, put
from tests.patience import PATIENCE
from warmd.disk.cover import Use
from warmd.disk.errors import DamagedError
from warmd.disk.files import Files
from warmd.disk.pace import MARGIN, ReadPace, allowed_seconds
from warmd.disk.pace import PATIENCE as LONGEST
from warmd.disk.reader import Ended, Failed, Planned, Read, Reader
from warmd.disk.shelf import Shelf


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """An index of an empty folder."""
    return Shelf(Files(tmp_path / "kv"))


def use_of(shelf: Shelf, number: int) -> Use:
    """A file that is there."""
    record = put(shelf.files, make_piece([number]))
    return Use(record, record.end)


def test_files_come_in_the_order_of_the_plan(shelf: Shelf) -> None:
    uses = [use_of(shelf, number) for number in range(4)]
    reader = Reader(shelf, lambda: uses)
    contents = [make_piece([number]).content for number in range(4)]
    expected = [Planned(uses), *map(Read, uses, contents), Ended()]
    assert expected == [reader.take(PATIENCE) for _ in expected]
    assert reader.take(0) is None


def test_whoever_takes_what_is_read_can_go_while_more_is_there_to_be_taken(shelf: Shelf) -> None:
    class Taker:
        def plan(self) -> list[Use]:
            return [use_of(shelf, number) for number in range(4)]

    taker = Taker()
    reader = Reader(shelf, taker.plan)
    assert isinstance(reader.take(PATIENCE), Planned)
    gone = weakref.ref(taker)
    del taker
    # The thread is there, with a file that nobody takes.
    assert gone() is None
    assert isinstance(reader.take(PATIENCE), Read)
    reader.cancel()


def test_nothing_comes_after_a_file_that_is_not_what_was_written(shelf: Shelf) -> None:
    uses = [use_of(shelf, number) for number in range(2)]
    (shelf.files.folder / uses[0].record.name).write_bytes(b"spoilt")
    reader = Reader(shelf, lambda: uses)
    reader.take(PATIENCE)
    failed = reader.take(PATIENCE)
    assert isinstance(failed, Failed)
    assert (uses[0], DamagedError) == (failed.use, type(failed.error))
    assert reader.take(0.2) is None


def test_a_file_that_is_gone_is_an_error_of_the_system(shelf: Shelf) -> None:
    uses = [use_of(shelf, 1)]
    shelf.files.remove(uses[0].record.name)
    reader = Reader(shelf, lambda: uses)
    reader.take(PATIENCE)
    failed = reader.take(PATIENCE)
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, FileNotFoundError)


def test_a_plan_that_cannot_be_made_is_the_end(shelf: Shelf) -> None:
    def plan() -> list[Use]:
        raise RuntimeError

    failed = Reader(shelf, plan).take(PATIENCE)
    assert isinstance(failed, Failed)
    assert (failed.use, type(failed.error)) == (None, RuntimeError)


def test_a_cancelled_reader_ends(shelf: Shelf) -> None:
    uses = [use_of(shelf, number) for number in range(4)]
    before = set(threading.enumerate())
    reader = Reader(shelf, lambda: uses)
    (thread,) = set(threading.enumerate()) - before
    reader.take(PATIENCE)
    reader.cancel()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_reading_may_take_as_long_as_prefilling_and_a_little_more() -> None:
    assert allowed_seconds(2000, 500.0) == 4 + MARGIN
    assert allowed_seconds(2000, None) == LONGEST


def test_a_slow_disk_is_left_alone_for_a_while_but_where_much_is_at_stake() -> None:
    now = [100.0]
    pace = ReadPace(lambda: now[0])
    found = [pace.is_worth(0.1)]
    pace.note_slow(3.0)
    for seconds in (0, 599, 2):
        now[0] += seconds
        found.append(pace.is_worth(6.0))
        found.append(pace.is_worth(6.1))
    assert found == [True, False, True, False, True, True, True]
