"""Reading a log that is rotated while it is read."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmd.logread.lines import LogReader, rotated


def rotate(path: Path) -> None:
    """Rename a log out of the way, as its writer does."""
    for file in rotated(path):
        number = int(file.suffix[1:]) if file != path else 0
        file.rename(path.with_name(f"{path.name}.{number + 1}"))


def append(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def read(reader: LogReader) -> list[str]:
    return [line.decode() for line in reader.lines()]


def test_the_oldest_comes_first_by_number_and_not_by_name(tmp_path: Path) -> None:
    for name in (
        "w.jsonl",
        "w.jsonl.1",
        "w.jsonl.2",
        "w.jsonl.10",
        "w.jsonl.gz",
        "w.jsonl.1.bak",
        "w.jsonlx",
    ):
        append(tmp_path / name, name)
    path = tmp_path / "w.jsonl"
    assert read(LogReader(path)) == ["w.jsonl.10", "w.jsonl.2", "w.jsonl.1", "w.jsonl"]


def test_only_new_lines_come_later_across_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    reader = LogReader(path)
    assert read(reader) == []
    append(path, "a", "b")
    assert read(reader) == ["a", "b"]
    append(path, "c")
    rotate(path)
    append(path, "d")
    assert read(reader) == ["c", "d"]
    rotate(path)
    rotate(path)
    append(path, "e")
    assert read(reader) == ["e"]
    assert read(reader) == []


def test_half_a_line_waits_for_its_rest(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    reader = LogReader(path)
    path.write_text("a\nhal")
    assert read(reader) == ["a"]
    with path.open("a") as file:
        file.write("f\n")
    assert read(reader) == ["half"]


def test_a_file_that_somebody_has_emptied_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    reader = LogReader(path)
    append(path, "a", "b")
    assert read(reader) == ["a", "b"]
    os.truncate(path, 0)
    append(path, "c")
    assert read(reader) == ["c"]


@pytest.mark.parametrize("how", ["filled again", "made again"])
def test_another_file_in_its_place_is_read_from_its_beginning(how: str, tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    reader = LogReader(path)
    append(path, "a", "b")
    assert read(reader) == ["a", "b"]
    if how == "filled again":
        os.truncate(path, 0)
    else:
        path.unlink()
    append(path, "c", "d", "e")
    assert read(reader) == ["c", "d", "e"]
    append(path, "f")
    assert read(reader) == ["f"]


def test_a_file_that_begins_with_a_long_line_is_told_by_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    reader = LogReader(path)
    for text in ("a" * 5000, "b"):
        append(path, text)
        assert read(reader) == [text]


def test_a_name_is_no_pattern(tmp_path: Path) -> None:
    path = tmp_path / "w[1]*.jsonl"
    append(tmp_path / "w[1]*.jsonl.1", "old")
    append(tmp_path / "w1x.jsonl.1", "another's")
    append(path, "new")
    assert read(LogReader(path)) == ["old", "new"]
    assert rotated(tmp_path / "no" / "folder") == []


def test_a_line_without_end_is_not_held(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("warmd.logread.lines.LONGEST_LINE", 10)
    path = tmp_path / "w.jsonl"
    reader = LogReader(path)
    append(path, "x" * 35, "short", "y" * 10, "z" * 9)
    assert read(reader) == ["x" * 10, "short", "y" * 10, "z" * 9]
    with path.open("a") as file:
        file.write("w" * 25)
    assert read(reader) == []
    append(path, "!")
    assert read(reader) == ["w" * 10]


def test_a_rotation_in_the_midst_of_reading_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    append(path, "a", "b")
    rotate(path)
    append(path, "c", "d")
    reader = LogReader(path)
    lines = reader.lines()
    assert next(lines) == b"a"
    rotate(path)
    append(path, "e")
    assert [line.decode() for line in lines] == ["b", "c", "d"]
    assert read(reader) == ["e"]


def test_following_looks_again_after_a_pause(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        append(path, f"after {len(pauses)}")

    append(path, "before")
    found = list(islice(LogReader(path, sleep).follow(), 3))
    assert (found, pauses) == ([b"before", b"after 1", b"after 2"], [0.25, 0.25])


@given(st.lists(st.sampled_from(["write", "rotate", "read"]), max_size=30))
def test_each_line_is_read_once_and_in_order(steps: list[str]) -> None:
    with TemporaryDirectory(prefix="warmd-test-") as folder:
        path = Path(folder) / "w.jsonl"
        reader, written, found = LogReader(path), 0, []
        for step in [*steps, "read"]:
            if step == "write":
                append(path, str(written))
                written += 1
            elif step == "rotate":
                rotate(path)
            else:
                found += read(reader)
        assert found == [str(number) for number in range(written)]
