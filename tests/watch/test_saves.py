"""Every way in which programs save a file is noticed, and its final content is what is read."""

# ruff: noqa: ASYNC240 - a test is the program that writes, and a local disk does not block it

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.patience import PATIENCE, eventually
from tests.watch.follower import following
from tests.watch.sources import Told
from warmd.settings import Settings, WatchSettings
from warmd.watch import Look, Watcher, signature
from warmd.watch.watcher import POLL_PERIOD

PATIENT = WatchSettings(settle=0.6, ceiling=10.0, rehash=600.0)
"""Settles so late that the pauses of a slow save never count as quiet, on a busy machine either."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "w.json").write_text("0")
    return tmp_path / "w.json"


def write_in_place(path: Path, content: str) -> None:
    path.write_text(content)


def replace_atomically(path: Path, content: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(content)
    temporary.replace(path)


def save_like_vim(path: Path, content: str) -> None:
    """Vim with `backup`: probe that the directory is writable, rename, write anew, delete the backup."""
    probe, backup = path.with_name("4913"), path.with_name(f"{path.name}~")
    probe.write_text("")
    probe.unlink()
    path.rename(backup)
    path.write_text(content)
    backup.unlink()


def save_like_jetbrains(path: Path, content: str) -> None:
    """A "safe write": the new file is complete before the old one moves out of its way."""
    new, old = path.with_name(f"{path.name}___jb_tmp___"), path.with_name(f"{path.name}___jb_old___")
    new.write_text(content)
    path.rename(old)
    new.rename(path)
    old.unlink()


def write_twice(path: Path, content: str) -> None:
    path.write_text("")
    time.sleep(0.003)
    path.write_text(content)


def restore_an_older_file(path: Path, content: str) -> None:
    older = path.with_name("older")
    older.write_text(content)
    os.utime(older, (1, 1))
    older.replace(path)


def delete_and_write(path: Path, content: str) -> None:
    path.unlink()
    path.write_text(content)


Save = Callable[[Path, str], None]
SAVES: list[Save] = [
    write_in_place,
    replace_atomically,
    save_like_vim,
    save_like_jetbrains,
    write_twice,
    restore_an_older_file,
    delete_and_write,
]


@pytest.mark.parametrize("save", SAVES)
async def test_each_of_several_saves_is_one_look(path: Path, save: Save) -> None:
    async with following(path) as follower:
        for content in ("1", "2", "3"):
            save(path, content)
            await follower.saw(content)
        assert follower.contents == [("0",), ("1",), ("2",), ("3",)]


def write_in_two_halves(path: Path) -> None:
    with path.open("w") as file:
        file.write("half ")
        file.flush()
        time.sleep(0.15)
        file.write("whole")


def rename_wait_and_write(path: Path) -> None:
    backup = path.with_name(f"{path.name}~")
    path.rename(backup)
    time.sleep(0.2)
    path.write_text("half whole")
    backup.unlink()


@pytest.mark.parametrize("save", [write_in_two_halves, rename_wait_and_write])
async def test_a_slow_save_is_looked_at_once_when_it_is_complete(
    path: Path, save: Callable[[Path], None]
) -> None:
    async with following(path, settings=PATIENT) as follower:
        await anyio.to_thread.run_sync(save, path)
        await follower.saw("half whole")
        assert follower.contents == [("0",), ("half whole",)]


async def test_a_save_during_the_read_is_noticed(path: Path) -> None:
    """What was seen is what the file looked like before it was read, not after."""
    watcher = Watcher(WatchSettings(settle=0.0))
    seen = signature([path])
    assert path.read_text() == "0"
    path.write_text("1")
    watcher.follow([path], seen)
    with anyio.fail_after(PATIENCE):
        assert await watcher.settled() == Look()


async def test_a_deleted_file_is_noticed_and_so_is_its_return(path: Path) -> None:
    async with following(path) as follower:
        path.unlink()
        await follower.saw(None)
        path.write_text("1")
        await follower.saw("1")
        assert follower.contents == [("0",), (None,), ("1",)]


@pytest.mark.parametrize("save", [write_in_place, replace_atomically])
@pytest.mark.promise(2)
async def test_a_storm_of_saves_is_two_looks_at_most(path: Path, save: Save) -> None:
    def storm() -> None:
        for number in range(1, 1001):
            save(path, str(number))

    async with following(path) as follower:
        began = time.monotonic()
        await anyio.to_thread.run_sync(storm)
        seconds = time.monotonic() - began
        await follower.saw("1000")
        # A machine too busy for a thousand saves a second may take one look more for each further second.
        assert len(follower.looks) <= 2 + int(seconds)


@pytest.fixture
async def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that each sleep asked for: no more on a busy machine, where all of them take longer."""
    asked: list[float] = []
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def note(delay: float, *arguments: Any, **more: Any) -> asyncio.TimerHandle:
        asked.append(delay)
        return call_later(delay, *arguments, **more)

    monkeypatch.setattr(loop, "call_later", note)
    return asked


@pytest.mark.parametrize("is_polling", [False, True])
@pytest.mark.promise(2)
async def test_from_a_save_to_the_look_less_than_a_second_is_waited(
    path: Path, in_force: Settings, waits: list[float], is_polling: bool
) -> None:
    told = Told()
    settings = replace(in_force.watch, poll=is_polling)
    watcher = Watcher(settings, events=told)
    async with anyio.create_task_group() as tasks:
        await tasks.start(watcher.run)
        watcher.follow([path], signature([path]))
        await eventually(lambda: is_polling or bool(told.options))
        # What follows a `follow` is over.
        waits.clear()
        path.write_text("1")
        told.change.set()
        with anyio.fail_after(PATIENCE):
            assert await watcher.settled() == Look()
        settling = sum(waits)
        tasks.cancel_scope.cancel()
    noticing = POLL_PERIOD if is_polling else (told.options["step"] + told.options["debounce"]) / 1000
    assert 0 < settling <= settings.settle
    assert noticing + settling < 1


@pytest.mark.promise(2)
async def test_a_file_that_keeps_changing_is_waited_for_no_longer_than_a_second(
    path: Path, in_force: Settings, waits: list[float]
) -> None:
    told = Told()
    watcher = Watcher(in_force.watch, events=told)
    watcher.follow([path], signature([path]))
    path.write_text("1")

    async def scribble() -> None:
        for number in range(100_000):
            # Not by a sleep, which would be noted.
            with anyio.move_on_after(in_force.watch.settle / 4):
                await anyio.Event().wait()
            path.write_text("1" * (number % 100))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scribble)
        with anyio.fail_after(PATIENCE):
            # On a machine so busy that nothing was written for long, it may have settled.
            await watcher.settled()
        tasks.cancel_scope.cancel()
    assert 0 < sum(waits) <= in_force.watch.ceiling <= 1


async def test_a_file_that_never_rests_is_looked_at_when_the_ceiling_is_reached(path: Path) -> None:
    calm = threading.Event()

    def scribble() -> None:
        for number in range(10_000):
            path.write_text(f"unfinished {number}")
            if calm.wait(0.01):
                break
        path.write_text("finished")

    settings = WatchSettings(settle=2.0, ceiling=0.3, rehash=600.0)
    async with following(path, settings=settings) as follower, anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, scribble)
        await follower.looked(2)
        calm.set()
        await follower.saw("finished")
    assert follower.looks[0].still_changing
    assert follower.looks[1].still_changing


async def test_several_files_changed_together_are_one_look(path: Path) -> None:
    include = path.with_name("system.md")
    async with following(path, include) as follower:
        replace_atomically(path, "1")
        include.write_text("You are")
        await follower.saw("1", "You are")
        assert follower.contents == [("0", None), ("1", "You are")]
