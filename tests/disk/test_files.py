"""The folder: who may look into it, who may write, and that nothing is ever there by half."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.disk.made import make_piece
from tests.patience import PATIENCE
from warmd.disk.errors import LockedError
from warmd.disk.files import LOCK_NAME, Files
from warmd.disk.shelf import Shelf

PIECE = make_piece(range(50), size=50_000)
NAME = PIECE.record.name


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A folder that does not exist yet."""
    return Files(tmp_path / "deep" / "kv")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_else_can_look_inside(files: Files) -> None:
    before = os.umask(0)
    try:
        with files.locked():
            files.write(NAME, PIECE.content)
    finally:
        os.umask(before)
    assert (mode(files.folder), mode(files.folder / NAME)) == (0o700, 0o600)
    assert mode(files.folder / LOCK_NAME) == 0o600


def test_a_folder_that_was_open_is_closed(files: Files) -> None:
    files.folder.mkdir(parents=True, mode=0o755)
    with files.locked():
        assert mode(files.folder) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_not_used(files: Files) -> None:
    files.folder.mkdir(parents=True)
    os.chown(files.folder, 12345, 12345)
    with pytest.raises(PermissionError, match="it belongs to another user"):
        files.listed()
    with pytest.raises(PermissionError, match="it belongs to another user"):
        files.lock()


def test_one_process_writes(files: Files) -> None:
    with files.locked():
        with pytest.raises(LockedError), Files(files.folder).locked():
            pytest.fail("two")
        # It is as much a writer as before.
        with pytest.raises(LockedError), Files(files.folder).locked():
            pytest.fail("two")
    with Files(files.folder).locked():
        pass


def test_a_lock_whose_file_was_removed_is_none(files: Files) -> None:
    lock = files.lock()
    assert files.holds(lock)
    (files.folder / LOCK_NAME).unlink()
    assert not files.holds(lock)
    with files.locked():
        assert not files.holds(lock)
    os.close(lock)


def test_what_a_dead_process_left_is_removed_by_the_next_writer_only(files: Files) -> None:
    with files.locked():
        leftover = files.folder / f".writing-{NAME}"
        leftover.write_bytes(b"half")
        assert files.listed() == []
        with pytest.raises(LockedError), Files(files.folder).locked():
            pytest.fail("two")
        assert leftover.exists()
    with files.locked():
        assert not leftover.exists()


class Failing(Files):
    """A disk on which one step fails."""

    step = ""

    def _at(self, step: str) -> None:
        if step == self.step:
            raise OSError(errno.ENOSPC, "No space left on device")

    def fill(self, file: int, content: bytes) -> None:
        self._at("begin")
        os.write(file, content[: len(content) // 2])
        self._at("half")
        super().fill(file, content[len(content) // 2 :])

    def sync(self, file: int) -> None:
        self._at("sync")
        super().sync(file)

    def rename(self, temporary: Path, path: Path) -> None:
        self._at("rename")
        super().rename(temporary, path)

    def sync_folder(self) -> None:
        self._at("sync folder")
        super().sync_folder()


STEPS = ("begin", "half", "sync", "rename", "sync folder")


@pytest.mark.parametrize("step", STEPS)
def test_a_write_that_fails_leaves_nothing_or_all(files: Files, step: str) -> None:
    broken = Failing(files.folder)
    broken.make_folder()
    broken.step = step
    with pytest.raises(OSError, match="No space"):
        broken.write(NAME, PIECE.content)
    found = sorted(path.name for path in files.folder.iterdir())
    assert found == ([NAME] if step == "sync folder" else [])
    broken.step = ""
    broken.write(NAME, PIECE.content)
    assert PIECE.content == files.read(NAME)


SCRIPT = """
import os, signal, sys
from pathlib import Path
from tests.disk.test_files import Failing, NAME, PIECE

class Dying(Failing):
    def _at(self, step):
        if step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)

files = Dying(Path(sys.argv[1]))
files.step = sys.argv[2]
with files.locked():
    files.write(NAME, PIECE.content)
"""


@pytest.mark.parametrize("step", STEPS)
def test_a_process_that_is_killed_leaves_a_usable_folder(files: Files, step: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(files.folder), step], check=False, timeout=PATIENCE
    )
    assert done.returncode == -signal.SIGKILL
    shelf = Shelf(files)
    assert shelf.refresh() == []
    assert [record.name for record in shelf.records] == ([NAME] if step == "sync folder" else [])
    with files.locked():
        files.write(NAME, PIECE.content)
        shelf.refresh()
        assert PIECE.content == shelf.read(shelf.records[0])
        assert {NAME, LOCK_NAME} == {path.name for path in files.folder.iterdir()}
