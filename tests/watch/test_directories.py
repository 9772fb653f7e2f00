"""Directories that are missing, vanish and return."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.watch.follower import following


def make(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(content)


async def test_a_directory_that_is_missing_at_first_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "w.json"
    async with following(path) as follower:
        await follower.watches(tmp_path)
        make(path, "1")
        await follower.saw("1")
        await follower.watches(path.parent)
        path.write_text("2")
        await follower.saw("2")
        assert follower.rearmed == [path.parent]


async def test_a_directory_that_is_deleted_and_made_again_is_followed_each_time(tmp_path: Path) -> None:
    path = tmp_path / "a" / "w.json"
    make(path, "0")
    async with following(path) as follower:
        for content in ("1", "2"):
            shutil.rmtree(path.parent)
            await follower.saw(None)
            await follower.watches(tmp_path)
            make(path, content)
            await follower.saw(content)
            await follower.watches(path.parent)
        assert follower.rearmed == [path.parent, path.parent]


async def test_a_directory_made_again_at_once_is_still_heard(tmp_path: Path) -> None:
    """It often gets the inode of the one before, so that nothing but the dead watch tells them apart."""
    path = tmp_path / "a" / "w.json"
    make(path, "0")
    async with following(path) as follower:
        for content in ("1", "2"):
            shutil.rmtree(path.parent)
            make(path, content)
            await follower.saw(content)
            path.write_text(f"{content} edited")
            await follower.saw(f"{content} edited")
        # Once for both, if the second came before the watch had followed the first.
        assert follower.rearmed in ([path.parent], [path.parent, path.parent])


async def test_a_directory_that_another_takes_the_place_of_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "a" / "w.json"
    make(path, "0")
    make(tmp_path / "b" / "w.json", "1")
    async with following(path) as follower:
        (tmp_path / "a").rename(tmp_path / "old")
        (tmp_path / "b").rename(tmp_path / "a")
        await follower.saw("1")
        path.write_text("2")
        await follower.saw("2")
        assert follower.rearmed == [path.parent]


async def test_files_that_come_to_be_followed_are_watched_too(tmp_path: Path) -> None:
    path, include = tmp_path / "w.json", tmp_path / "prompts" / "system.md"
    path.write_text("0")
    make(include, "0")
    async with following(path) as follower:
        await follower.watches(tmp_path)
        follower.files = (path, include)
        path.write_text("1")
        await follower.saw("1", "0")
        await follower.watches(tmp_path, include.parent)
        include.write_text("1")
        await follower.saw("1", "1")
        assert follower.rearmed == []
