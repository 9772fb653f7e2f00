"""The log file: bounded, and followed wherever it goes."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from warmd.control.place import state_folder
from warmd.errors import UsageError
from warmd.logfile import LogFile, log_file_path, open_log_file
from warmd.logs import Log
from warmd.settings import LogSettings, StateSettings

LINE = "x" * 99 + "\n"


def numbers(path: Path) -> list[int]:
    """The field `number` of each line of a log."""
    return [found["number"] for found in map(json.loads, path.read_text().splitlines()) if "number" in found]


def events(text: str) -> list[str]:
    return [json.loads(line)["event"] for line in text.splitlines()]


def make_log(path: Path, *, max_bytes: int = 1 << 20, keep: int = 3, **more: Any) -> tuple[Log, io.StringIO]:
    """A log on a file, and what it says on its stream."""
    stream = io.StringIO()
    return Log(stream, file=LogFile(path, max_bytes, keep), **more), stream


def write(log: Log, *numbers: int) -> None:
    for number in numbers:
        log.write("x.happened", "info", number=number)


def test_a_file_and_its_folder_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "warmd.jsonl"
    LogFile(path, 1000, 1).write(LINE)
    assert path.read_text() == LINE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_what_is_there_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "warmd.jsonl"
    for _ in range(2):
        file = LogFile(path, 1000, 1)
        file.write(LINE)
        file.close()
    assert path.read_text() == LINE * 2


def test_after_half_a_line_of_a_killed_process_a_new_one_begins(tmp_path: Path) -> None:
    path = tmp_path / "warmd.jsonl"
    path.write_text('{"ts"')
    LogFile(path, 1000, 1).write(LINE)
    assert path.read_text() == '{"ts"\n' + LINE


@pytest.mark.parametrize("keep", [0, 1, 3])
def test_its_size_is_bounded_and_older_ones_are_set_aside(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "warmd.jsonl"
    file = LogFile(path, 1000, keep)
    for number in range(95):
        file.write(f"{number:02}" + LINE[2:])
    names = ["warmd.jsonl", *(f"warmd.jsonl.{number}" for number in range(1, keep + 1))]
    assert sorted(found.name for found in tmp_path.iterdir()) == names
    first = [(tmp_path / name).read_text()[:2] for name in names]
    assert first == ["90", "80", "70", "60"][: keep + 1]
    assert all((tmp_path / name).stat().st_size <= 1000 for name in names)


def test_fewer_are_kept_once_that_is_wanted(tmp_path: Path) -> None:
    path = tmp_path / "warmd.jsonl"
    for keep in (4, 1):
        file = LogFile(path, 100, keep)
        for _ in range(6):
            file.write(LINE)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["warmd.jsonl", "warmd.jsonl.1"]


def test_a_line_that_is_larger_than_the_bound_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File too large"):
        LogFile(tmp_path / "warmd.jsonl", 99, 1).write(LINE)


def test_where_nothing_can_be_renamed_it_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "warmd.jsonl"
    # A folder in the way, with something in it.
    (tmp_path / "warmd.jsonl.1" / "x").mkdir(parents=True)
    (tmp_path / "warmd.jsonl.2").write_text("")
    file = LogFile(path, 1000, 2)
    for _ in range(25):
        file.write(LINE)
    assert path.stat().st_size == 500


def test_a_file_that_was_renamed_is_left_and_a_new_one_begun(tmp_path: Path) -> None:
    path = tmp_path / "warmd.jsonl"
    log, _ = make_log(path)
    write(log, 1)
    path.rename(tmp_path / "old")
    write(log, 2)
    assert (numbers(tmp_path / "old"), numbers(path)) == ([1], [2])


def test_a_file_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "warmd.jsonl"
    log, _ = make_log(path)
    write(log, 1)
    path.unlink()
    path.parent.rmdir()
    write(log, 2)
    assert numbers(path) == [2]


def test_a_file_that_was_emptied_goes_on_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "warmd.jsonl"
    log, _ = make_log(path)
    write(log, 1)
    os.truncate(path, 0)
    write(log, 2)
    assert numbers(path) == [2]


def test_two_processes_may_share_one(tmp_path: Path) -> None:
    path = tmp_path / "warmd.jsonl"
    first, second = LogFile(path, 1000, 2), LogFile(path, 1000, 2)
    for _ in range(12):
        first.write("a" + LINE[1:])
        second.write("b" + LINE[1:])
    found = [path, tmp_path / "warmd.jsonl.1", tmp_path / "warmd.jsonl.2"]
    assert [each.stat().st_size for each in found] == [400, 1000, 1000]
    assert path.read_text()[::100] == "abab"


@pytest.mark.parametrize("kind", ["folder", "fifo", "below a file"])
def test_what_cannot_be_a_log_is_told_once_and_its_lines_go_to_the_stream(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "warmd.jsonl"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.write_text("")
        path = path / "warmd.jsonl"
    log, stream = make_log(path, stream_level="error")
    write(log, 1, 2, 3)
    assert events(stream.getvalue()) == ["x.happened", "log.failed", "x.happened", "x.happened"]


def test_lost_lines_are_counted_in_the_file_once_it_works(tmp_path: Path) -> None:
    path = tmp_path / "warmd.jsonl"
    path.mkdir()
    log, _ = make_log(path)
    write(log, 1, 2)
    path.rmdir()
    write(log, 3, 4)
    assert [found["event"] for found in map(json.loads, path.read_text().splitlines())] == [
        "x.happened",
        "log.dropped",
        "x.happened",
    ]
    assert [line["lines"] for line in map(json.loads, path.read_text().splitlines()) if "lines" in line] == [
        2
    ]
    assert numbers(path) == [3, 4]


def test_while_the_file_takes_them_only_errors_also_go_to_the_stream(tmp_path: Path) -> None:
    log, stream = make_log(tmp_path / "warmd.jsonl", stream_level="error")
    log.write("x.happened", "warning", number=1)
    log.write("x.happened", "error", number=2)
    assert [json.loads(line)["number"] for line in stream.getvalue().splitlines()] == [2]
    assert numbers(tmp_path / "warmd.jsonl") == [1, 2]


def test_a_stream_that_is_closed_does_not_hurt_the_file(tmp_path: Path) -> None:
    log, stream = make_log(tmp_path / "warmd.jsonl")
    stream.close()
    write(log, 1, 2)
    assert numbers(tmp_path / "warmd.jsonl") == [1, 2]


SCRIPT = """
import resource, signal, sys, io
from pathlib import Path
from warmd.logfile import LogFile
from warmd.logs import Log

path = Path(sys.argv[1])
# A file that may not grow any more refuses a part of a line, as a full disk does.
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = Log(io.StringIO(), file=LogFile(path, 1 << 20, 1))
log.write("x.happened", "info", number=1)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, hard))
log.write("x.happened", "info", number=2)
assert path.read_text().endswith("}\\n"), path.read_text()
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.write("x.happened", "info", number=3)
"""


def test_a_full_disk_leaves_no_half_lines(tmp_path: Path) -> None:
    path = tmp_path / "warmd.jsonl"
    subprocess.run([sys.executable, "-c", SCRIPT, str(path)], check=True, timeout=PATIENCE)
    assert numbers(path) == [1, 3]
    assert events(path.read_text()) == ["x.happened", "x.happened", "log.dropped"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk to order is there on Linux only")
def test_a_disk_that_is_full_from_the_beginning_hurts_nobody(tmp_path: Path) -> None:
    path = tmp_path / "warmd.jsonl"
    path.symlink_to("/dev/full")
    log, stream = make_log(path)
    write(log, 1)
    assert events(stream.getvalue()) == ["x.happened", "log.failed"]


def test_too_many_open_files_hurt_nobody(tmp_path: Path) -> None:
    log, stream = make_log(tmp_path / "warmd.jsonl")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        with contextlib.suppress(OSError):
            while True:
                held.append(os.dup(0))
        write(log, 1)
    finally:
        for file in held:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    write(log, 2)
    assert json.loads(stream.getvalue().splitlines()[1])["reason"] == os.strerror(errno.EMFILE)
    assert numbers(tmp_path / "warmd.jsonl") == [2]


def test_it_is_where_the_settings_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert log_file_path(LogSettings(file="")) is None
    assert open_log_file(LogSettings(file="")) is None
    assert log_file_path(LogSettings(file="~/x.jsonl")) == tmp_path / "x.jsonl"
    found = log_file_path(LogSettings())
    assert found is not None
    assert found.name == "warmd.jsonl"
    assert found.is_relative_to(tmp_path)


def test_without_a_home_folder_there_is_no_default_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    with pytest.raises(UsageError, match="home"):
        log_file_path(LogSettings())
    with pytest.raises(UsageError, match="home"):
        state_folder(StateSettings())
