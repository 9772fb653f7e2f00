"""The ways in which editors and tools save, against one running server."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.process import Json, Server, cached, serving, write
from tests.serving.test_control import named
from warmd.settings import WatchSettings

RULES = "Answer in one short sentence, and say when you do not know. " * 6

Save = Callable[[Path, str], None]


def in_place(path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8")


def slow_chunks(path: Path, content: str) -> None:
    middle = len(content) // 2
    with path.open("w", encoding="utf-8") as file:
        file.write(content[:middle])
        file.flush()
        time.sleep(0.15)
        file.write(content[middle:])


def atomic_replace(path: Path, content: str) -> None:
    scratch = path.with_name(f".{path.name}.tmp")
    scratch.write_text(content, encoding="utf-8")
    scratch.replace(path)


def vim(path: Path, content: str) -> None:
    probe, backup = path.with_name("4913"), path.with_name(f"{path.name}~")
    probe.touch()
    probe.unlink()
    path.rename(backup)
    time.sleep(0.1)
    path.write_text(content, encoding="utf-8")
    backup.unlink()


def symlink_target(path: Path, content: str) -> None:
    target = path.parent / "elsewhere" / "target.json"
    target.parent.mkdir(exist_ok=True)
    if not path.is_symlink():
        shutil.move(path, target)
        path.symlink_to(target)
        time.sleep(0.2)
    target.write_text(content, encoding="utf-8")


def retargeted_link(path: Path, content: str) -> None:
    target = path.parent / f"version-{time.monotonic_ns()}.json"
    target.write_text(content, encoding="utf-8")
    os.utime(target, (1, 1))
    link = path.with_name("new-link")
    link.symlink_to(target.name)
    link.replace(path)


def recreated_directory(path: Path, content: str) -> None:
    shutil.rmtree(path.parent)
    time.sleep(0.1)
    path.parent.mkdir()
    path.write_text(content, encoding="utf-8")


SAVES: list[Save] = [
    in_place,
    slow_chunks,
    atomic_replace,
    vim,
    symlink_target,
    retargeted_link,
    recreated_directory,
]


@pytest.fixture(scope="module")
def server(
    models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Path]]:
    prompts = tmp_path_factory.mktemp("saves") / "folder" / "prompts.json"
    write(prompts, [])
    with serving(models["llama"], prompts) as found:
        found.wait_for("daemon.ready")
        yield found, prompts


@pytest.mark.parametrize("save", SAVES, ids=lambda save: save.__name__)
@pytest.mark.promise(2)
def test_each_way_of_saving_is_seen_twice_in_a_row(server: tuple[Server, Path], save: Save) -> None:
    running, prompts = server
    for number in range(2):
        content = f"{save.__name__} {number}. {RULES}"
        entries: list[Any] = [[{"role": "system", "content": content}]]
        rejected, began = len(running.seen("prompts.rejected")), time.monotonic()
        save(prompts, json.dumps(entries))
        # On a machine so busy that the pauses of a save last longer, half a file is what is there.
        is_whole = time.monotonic() - began < WatchSettings().settle
        tokens = running.wait_for("entry.warmed")["tokens"]
        question: list[Json] = [*entries[0], {"role": "user", "content": "hello"}]
        assert cached(running.chat(question, max_tokens=1)) == tokens
        assert not is_whole or len(running.seen("prompts.rejected")) == rejected


def test_an_included_file_is_watched_too(server: tuple[Server, Path]) -> None:
    running, prompts = server
    included = prompts.parent / "text" / "rules.md"
    included.parent.mkdir()
    included.write_text(f"First. {RULES}", encoding="utf-8")
    write(prompts, [[{"role": "system", "content_file": "text/rules.md"}]])
    running.wait_for("entry.warmed")
    included.write_text(f"Second. {RULES}", encoding="utf-8")
    accepted = running.wait_for("prompts.accepted")
    assert (accepted["added"], accepted["edited"]) == (0, 1)
    tokens = running.wait_for("entry.warmed")["tokens"]
    question = [{"role": "system", "content": f"Second. {RULES}"}, {"role": "user", "content": "hello"}]
    assert cached(running.chat(question, max_tokens=1)) == tokens


@pytest.mark.promise(2)
def test_a_thousand_saves_in_a_second_cause_two_reconciles_at_most_and_the_last_one_wins(
    server: tuple[Server, Path],
) -> None:
    running, prompts = server
    before, began = len(running.seen("plan.made")), time.monotonic()
    for number in range(1000):
        write(prompts, [named(f"n{number}", RULES)])
    seconds = time.monotonic() - began
    running.wait_for("entry.warmed", entry="n999")
    # A machine too busy for a thousand saves a second may take one more for each further second.
    assert len(running.seen("plan.made")) - before <= 2 + int(seconds)
