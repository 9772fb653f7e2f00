"""Files reached through symbolic links, as dotfile managers, Nix and Kubernetes make them."""

# ruff: noqa: ASYNC240 - a test is the program that writes, and a local disk does not block it

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.watch.follower import following


@pytest.fixture
def link(tmp_path: Path) -> Path:
    for name in ("home", "dotfiles"):
        (tmp_path / name).mkdir()
    (tmp_path / "dotfiles" / "w.json").write_text("0")
    link = tmp_path / "home" / "w.json"
    link.symlink_to(tmp_path / "dotfiles" / "w.json")
    return link


def edit_the_target(link: Path) -> None:
    link.resolve().write_text("1")


def replace_the_target(link: Path) -> None:
    new = link.resolve().with_name("new")
    new.write_text("1")
    new.replace(link.resolve())


def retarget_to_an_equally_old_file(link: Path) -> None:
    """The Nix store gives all files one time, and link farms are replaced by rename."""
    target = link.resolve()
    other = target.with_name("other.json")
    other.write_text("1")
    os.utime(other, ns=(target.stat().st_atime_ns, target.stat().st_mtime_ns))
    new = link.with_name("new-link")
    new.symlink_to(other)
    new.replace(link)


def replace_the_link_by_a_file(link: Path) -> None:
    link.unlink()
    link.write_text("1")


@pytest.mark.parametrize(
    "change",
    [edit_the_target, replace_the_target, retarget_to_an_equally_old_file, replace_the_link_by_a_file],
)
async def test_a_change_behind_a_link_is_noticed(link: Path, change: Callable[[Path], None]) -> None:
    async with following(link) as follower:
        change(link)
        await follower.saw("1")
        assert follower.contents == [("0",), ("1",)]


async def test_the_new_target_of_a_link_is_watched(link: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "w.json").write_text("1")
    async with following(link) as follower:
        await follower.watches(tmp_path / "home", tmp_path / "dotfiles")
        link.unlink()
        link.symlink_to("../elsewhere/w.json")
        await follower.saw("1")
        await follower.watches(tmp_path / "home", tmp_path / "elsewhere")
        (tmp_path / "elsewhere" / "w.json").write_text("2")
        await follower.saw("2")
        assert follower.rearmed == []


async def test_each_swap_of_a_kubernetes_volume_is_noticed(tmp_path: Path) -> None:
    """`w.json -> ..data/w.json`, `..data -> ..v1`: no event ever names the file."""

    def publish(version: str) -> None:
        (tmp_path / f"..{version}").mkdir()
        (tmp_path / f"..{version}" / "w.json").write_text(version)
        (tmp_path / "..data_tmp").symlink_to(f"..{version}")
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")

    publish("v1")
    (tmp_path / "w.json").symlink_to("..data/w.json")
    async with following(tmp_path / "w.json") as follower:
        for version in ("v2", "v3"):
            publish(version)
            await follower.saw(version)
            await follower.watches(tmp_path, tmp_path / f"..{version}")
        assert follower.contents == [("v1",), ("v2",), ("v3",)]
