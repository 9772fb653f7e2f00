"""Everything that can make a file another one shows in its signature."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from warmd.watch import FileSignature, signature


def rewrite_and_restore_times(path: Path) -> None:
    before = path.stat()
    path.write_text("new")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_with_equal_times(path: Path) -> None:
    before, other = path.stat(), path.with_name("other")
    other.write_text("new")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


CHANGES: dict[str, Callable[[Path], object]] = {
    "grown": lambda path: path.write_text("longer"),
    "deleted": lambda path: path.unlink(),
    "replaced with equal times": replace_with_equal_times,
    "rewritten with its times restored": rewrite_and_restore_times,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file_looks_different(tmp_path: Path, change: str) -> None:
    path = tmp_path / "w.json"
    path.write_text("old")
    before = signature([path])
    CHANGES[change](path)
    assert before != signature([path])


def test_an_untouched_file_looks_the_same(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_text("old")
    before = signature([path])
    (tmp_path / "w.json.log").write_text("neighbour")
    assert path.read_text() == "old"
    assert before == signature([path])


def test_a_link_to_another_name_of_the_same_inode_looks_different(tmp_path: Path) -> None:
    """The strictest case of "equal size, equal times": everything but the path is equal."""
    (tmp_path / "one").write_text("x")
    (tmp_path / "two").hardlink_to(tmp_path / "one")
    link = tmp_path / "w.json"
    link.symlink_to("one")
    before = signature([link])
    link.unlink()
    link.symlink_to("two")
    assert before != signature([link])


@pytest.mark.parametrize("name", ["missing", "a\0b", "\ud800", "x" * 5000, "loop/w.json"])
def test_what_cannot_be_reached_has_an_empty_signature(tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert (FileSignature(tmp_path / name),) == signature([tmp_path / name])


def test_a_directory_and_a_fifo_have_signatures_like_any_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert [item.inode is not None for item in signature([tmp_path, tmp_path / "fifo"])] == [True, True]
