"""Small files of ours, whatever has become of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from warmd.crash import quarantine, starts
from warmd.crash.quarantine import read_suspects
from warmd.crash.starts import FailedStart, FailedStarts, note_failed_start, read_failed_starts
from warmd.crash.suspects import Suspect, Suspects, suspects_json
from warmd.files.state import LARGEST, read_json, write_json
from warmd.rates import FILE_NAME as RATES
from warmd.rates import read_rates

NUMBERS = ["1e999", "-1e999", "1" * 400, "1e300", "1" * 5000, "NaN", "Infinity"]
SUSPECT = Suspect("k", "m", "auto", ("a",), 5, 1, 7.5)


def as_it_is(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", b"[" * 99_999, b" " * LARGEST + b"1", *(number.encode() for number in NUMBERS)],
)
def test_what_makes_no_sense_is_as_good_as_nothing(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    assert read_json(path, as_it_is, "nothing") == "nothing"


@pytest.mark.parametrize(
    "error", [KeyError, IndexError, TypeError, ValueError, OverflowError, ZeroDivisionError, AttributeError]
)
def test_a_value_of_another_kind_is_as_good_as_nothing(error: type[Exception], tmp_path: Path) -> None:
    def parse(value: Any) -> str:
        raise error

    write_json(tmp_path / "x.json", 1)
    assert read_json(tmp_path / "x.json", parse, "nothing") == "nothing"


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo", "device", "loop"])
def test_what_is_no_file_is_neither_read_nor_waited_for(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path)
    assert read_json(path, as_it_is, "nothing") == "nothing"


@pytest.mark.parametrize("number", [*NUMBERS, '"nan"', '"1e309"', '"7.5"', "true", "[]"])
def test_no_number_breaks_a_start(number: str, tmp_path: Path) -> None:
    suspects = json.dumps(suspects_json(Suspects((), (SUSPECT,)))).replace("7.5", number)
    (tmp_path / quarantine.FILE_NAME).write_text(suspects)
    assert read_suspects(tmp_path) == Suspects()
    (tmp_path / starts.FILE_NAME).write_text(f'{{"failed": [], "gave_up_at": {number}}}')
    assert read_failed_starts(tmp_path) == FailedStarts()
    (tmp_path / RATES).write_text(f'{{"m": {{"launchd": {number}}}}}')
    assert not any(read_rates(tmp_path).values())


@pytest.mark.parametrize("kind", ["fifo", "folder", "loop", "link"])
def test_the_next_write_replaces_whatever_is_there(kind: str, tmp_path: Path) -> None:
    path, elsewhere = tmp_path / "s" / starts.FILE_NAME, tmp_path / "elsewhere"
    path.parent.mkdir()
    elsewhere.write_text("mine")
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
        (path / "mine").touch()
    elif kind == "loop":
        path.symlink_to(path)
    else:
        path.symlink_to(elsewhere)
    failure = FailedStart(1.0, 3, "r")
    note_failed_start(path.parent, failure)
    assert read_failed_starts(path.parent).failed == (failure,)
    assert elsewhere.read_text() == "mine"
    # What is in a folder is not warmd's to remove.
    assert len(list(tmp_path.glob(f"s/{starts.FILE_NAME}.*/mine"))) == (1 if kind == "folder" else 0)
