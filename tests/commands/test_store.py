"""`warmd store`: the folder of state, from outside."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.commands.terminal import make_environment, outcome, warmd
from tests.control.daemon_thread import live_daemon
from tests.disk.made import make_piece, put
from tests.test_cli import HEAVY
from warmd.disk.files import LOCK_NAME, Files
from warmd.disk.status import DiskStatus

HOUR = 3600.0
DAY = 24 * HOUR


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A folder with three files: of now, of an hour ago, and of ten days ago."""
    files = Files(tmp_path / "kv")
    now = time.time()
    put(files, make_piece(range(2000), 1000, size=50_000, now=now - 5))
    put(files, make_piece(range(1000), size=50_000, now=now - HOUR))
    put(files, make_piece([1, 2, 3], now=now - 10 * DAY))
    return files


def store(files: Files, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return warmd("store", *args, cwd=files.folder.parent, WARMD_STORE_PATH=str(files.folder), **environment)


def found_seconds(lines: list[str]) -> list[str]:
    """How long ago the youngest was wanted: that depends on how fast all this is."""
    return next(line.split()[7:] for line in lines if "1,000 to 2,000" in line)


def names(files: Files) -> list[str]:
    return sorted(item.name for item in files.listed())


def test_list_shows_each_file_and_no_text(files: Files) -> None:
    done = store(files, "list")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == str(files.folder)
    assert lines[1].split() == ["model", "prefix", "tokens", "bytes", "wanted"]
    found = {tuple(line.split()[2:5]) + tuple(line.split()[7:]) for line in lines[2:-1]}
    assert found == {
        ("0", "to", "1,000", "60", "min", "ago"),
        ("0", "to", "3", "10", "d", "0", "h", "ago"),
        ("1,000", "to", "2,000", *found_seconds(lines)),
    }
    assert lines[-1].split()[:2] == ["total", "3"]


def test_json_is_in_bytes_and_seconds(files: Files) -> None:
    found = json.loads(store(files, "list", "--json").stdout)
    sizes = {item.name: item.nbytes for item in files.listed()}
    assert found["path"] == str(files.folder)
    assert found["bytes"] == sum(sizes.values())
    assert {item["file"]: item["bytes"] for item in found["files"]} == sizes
    assert {(item["start"], item["end"]) for item in found["files"]} == {(0, 3), (0, 1000), (1000, 2000)}
    assert (found["damaged"], found["wanted_lag_s"]) == ([], None)


def test_a_total_of_one_is_one_file(tmp_path: Path) -> None:
    files = Files(tmp_path / "kv")
    put(files, make_piece([1, 2, 3], now=time.time()))
    assert store(files, "list").stdout.splitlines()[-1].split()[:3] == ["total", "1", "file"]


def test_what_a_running_daemon_may_want_now_is_not_called_unwanted(files: Files) -> None:
    state = files.folder.parent / "s"
    with live_daemon(state, files.folder.parent / "p.json") as it:
        it.do(lambda: it.engine.keep_on_disk(DiskStatus(str(files.folder), 3, 1)))
        done = store(files, "list", WARMD_STATE_DIR=str(state))
        found = json.loads(store(files, "list", "--json", WARMD_STATE_DIR=str(state)).stdout)
        it.do(lambda: it.engine.keep_on_disk(DiskStatus("/elsewhere", 3, 1)))
        elsewhere = store(files, "list", WARMD_STATE_DIR=str(state))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert (
        sorted(" ".join(line.split()[7:]) for line in lines[2:5])
        == ["10 d 0 h ago"] + ["within 17 h 48 min"] * 2
    )
    assert lines[-1].startswith("within 17 h 48 min: now, or lately;")
    assert found["wanted_lag_s"] == 64_080.0
    assert "within" not in elsewhere.stdout


def test_verify_finds_what_is_not_as_it_was_written(files: Files) -> None:
    expected = (0, f"{files.folder}: 3 files as written, 0 not\n", "")
    assert expected == outcome(store(files, "verify"))
    spoilt, cut, _ = names(files)
    content = bytearray((files.folder / spoilt).read_bytes())
    content[-1] ^= 1
    (files.folder / spoilt).write_bytes(content)
    (files.folder / cut).write_bytes(b"")
    done = store(files, "verify")
    assert (1, f"{files.folder}: 1 file as written, 2 not\n") == (done.returncode, done.stdout)
    assert {f"{cut}: it is cut short", f"{spoilt}: its content does not fit its checksum"} == set(
        done.stderr.splitlines()
    )
    found = json.loads(store(files, "verify", "--json").stdout)
    assert (found["ok"], len(found["damaged"])) == (False, 2)


def test_prune_removes_what_is_old_and_what_is_too_much(files: Files) -> None:
    assert "removed 1 file, " in store(files, "prune").stdout
    assert len(names(files)) == 2
    assert "removed 1 file, 54" in store(files, "prune", WARMD_STORE_MAX_BYTES="60KB").stdout
    assert len(names(files)) == 1
    assert outcome(store(files, "prune")) == (0, "removed 0 files, 0 B\n", "")


def test_a_running_daemon_prunes_by_itself(files: Files) -> None:
    with files.locked():
        done = store(files, "prune")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"warmd: {files.folder}: a daemon is running here")
    assert len(names(files)) == 3


def test_clear_removes_all_and_nothing_else(files: Files) -> None:
    (files.folder / "notes.txt").write_text("mine")
    assert "removed 3 files, " in store(files, "clear").stdout
    assert {"notes.txt"} == {path.name for path in files.folder.iterdir()} - {LOCK_NAME}


def test_clear_leaves_what_a_daemon_keeps(files: Files) -> None:
    with files.locked():
        done = store(files, "clear")
    assert (done.returncode, done.stdout, len(names(files))) == (1, "", 3)
    assert done.stderr.startswith(f"warmd: {files.folder}: a daemon is running here: stop it first")


@pytest.mark.parametrize("action", ["list", "verify", "prune", "clear"])
def test_without_a_folder_there_is_nothing_and_none_is_made(tmp_path: Path, action: str) -> None:
    files = Files(tmp_path / "none")
    assert store(files, action).returncode == 0
    assert not files.folder.exists()


def test_what_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    files = Files(tmp_path / "file")
    files.folder.write_text("no folder")
    expected = (1, "", f"warmd: {files.folder}: Not a directory\n")
    assert expected == outcome(store(files, "list"))


@pytest.mark.parametrize("args", [[], ["lst"], ["list", "--jso"]])
def test_anything_else_is_a_usage_error(files: Files, args: list[str]) -> None:
    assert store(files, *args).returncode == 2


def test_it_imports_nothing_that_takes_long(files: Files) -> None:
    script = (
        "import json, sys\n"
        "before = set(sys.modules)\n"
        "from warmd.cli import main\n"
        "codes = [main(['store', action, '--json']) for action in ('list', 'verify', 'prune')]\n"
        "print(json.dumps([codes, sorted(set(sys.modules) - before)]), file=sys.stderr)\n"
    )
    environment = make_environment(files.folder.parent, WARMD_STORE_PATH=str(files.folder))
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    codes, modules = json.loads(done.stderr)
    assert codes == [0, 0, 0]
    assert [module for module in modules if module.split(".")[0] in HEAVY] == []
