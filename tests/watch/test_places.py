"""Which directories are watched for which files."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmd.watch.places import (
    Place,
    arming,
    directories_of,
    returned,
    watched_paths,
    without_identity,
)

PLACE = Place(Path("/a/b"), Path("/a/b"), 1, 2)
MISSING = Place(Path("/a/b"), Path("/a"), 1, 1)


def test_a_plain_file_needs_its_directory(tmp_path: Path) -> None:
    assert {tmp_path / "x"} == directories_of([tmp_path / "x" / "w.json", tmp_path / "x" / "a.md"])


def test_a_link_needs_its_own_directory_and_its_target_s(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "w.json").symlink_to("../dotfiles/w.json")
    assert {tmp_path / "home", tmp_path / "dotfiles"} == directories_of([tmp_path / "home" / "w.json"])


def test_each_link_of_a_chain_counts_also_that_of_a_directory(tmp_path: Path) -> None:
    for name in ("home", "store", "store/v1"):
        (tmp_path / name).mkdir()
    (tmp_path / "home" / "config").symlink_to(tmp_path / "store" / "current")
    (tmp_path / "store" / "current").symlink_to("v1")
    expected = {tmp_path / "home", tmp_path / "store", tmp_path / "store" / "v1"}
    assert expected == directories_of([tmp_path / "home" / "config" / "w.json"])


def test_parents_are_taken_where_the_link_led(tmp_path: Path) -> None:
    (tmp_path / "deep" / "real").mkdir(parents=True)
    (tmp_path / "link").symlink_to("deep/real")
    expected = {tmp_path, tmp_path / "deep"}
    assert expected == directories_of([tmp_path / "link" / ".." / "w.json"])


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "w.json").symlink_to("other")
    (tmp_path / "other").symlink_to("w.json")
    assert {tmp_path} == directories_of([tmp_path / "w.json"])


def test_a_missing_directory_is_waited_for_in_its_nearest_ancestor(tmp_path: Path) -> None:
    status = tmp_path.stat()
    expected = Place(tmp_path / "x" / "y", tmp_path, status.st_dev, status.st_ino)
    assert {expected} == arming([tmp_path / "x" / "y" / "w.json"])
    assert [tmp_path] == watched_paths(frozenset({expected}))


def test_a_file_in_the_way_of_a_directory_is_waited_out(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("no directory")
    assert [tmp_path] == watched_paths(arming([tmp_path / "x" / "w.json"]))


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 5000])
def test_impossible_names_are_no_errors(tmp_path: Path, name: str) -> None:
    assert [tmp_path] == watched_paths(arming([tmp_path / name / "w.json"]))


def test_the_root_is_watched_only_for_files_in_it() -> None:
    assert watched_paths(arming([Path("/no-such-directory/w.json")])) == []
    assert [Path("/")] == watched_paths(arming([Path("/no-such-file.json")]))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({PLACE}, {PLACE}, []),
        (set(), {PLACE}, []),
        ({PLACE}, {MISSING}, []),
        ({MISSING}, {PLACE}, [PLACE.directory]),
        ({Place(Path("/a/b"), Path("/a/b"), 1, 3)}, {PLACE}, [PLACE.directory]),
        ({Place(Path("/a"), Path("/a"), 1, 1)}, {PLACE}, []),
    ],
    ids=["same", "first", "vanished", "came back", "replaced", "one more"],
)
def test_only_a_directory_that_was_gone_or_another_has_returned(
    before: set[Place], after: set[Place], expected: list[Path]
) -> None:
    assert expected == returned(frozenset(before), frozenset(after))


def test_a_directory_made_again_counts_as_another_although_its_inode_is_the_same() -> None:
    deleted = without_identity(frozenset({PLACE}), [PLACE.directory])
    assert [PLACE.directory] == returned(deleted, frozenset({PLACE}))
    assert frozenset({PLACE}) == without_identity(frozenset({PLACE}), [Path("/a/b/w.json")])
