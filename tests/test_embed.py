"""The daemon inside an async host."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import warmd
from tests.patience import PATIENCE, eventually
from tests.toys import make_tokenizer
from warmd.settings import Settings, WatchSettings

RULES = "You are a careful reviewer of code. " * 5


@dataclass
class Output:
    """What a stream yields."""

    finished: bool
    prompt_tokens: int


class Host:
    """An async engine of the contract: it streams from text, and remembers what it was asked."""

    def __init__(self) -> None:
        self.tokenizer = make_tokenizer()
        self.prompts: list[str] = []
        self.is_broken = False

    async def stream_generate(self, *, prompt: str, **options: Any) -> AsyncIterator[Output]:
        if self.is_broken:
            raise ConnectionError("down")
        self.prompts.append(prompt)
        await anyio.lowlevel.checkpoint()
        yield Output(True, len(self.tokenizer.encode(prompt, add_special_tokens=False)))

    async def stream_chat(self, *, messages: list[dict[str, Any]], **options: Any) -> AsyncIterator[Output]:
        yield Output(True, 0)


def save(path: Path, *contents: str) -> None:
    path.write_text(json.dumps([[{"role": "system", "content": content}] for content in contents]))


async def states(daemon: warmd.Daemon, *expected: str) -> None:
    """Wait until the entries are in these states."""
    await eventually(lambda: tuple(entry.state for entry in daemon.statistics().entries) == expected)


SETTINGS = Settings(watch=WatchSettings(settle=0.01, ceiling=0.1, rehash=0.2))


async def test_a_host_s_prompts_are_warmed_and_edits_followed(tmp_path: Path) -> None:
    host, path = Host(), tmp_path / "prompts.json"
    save(path, f"First. {RULES}")
    async with warmd.attach(host, path, SETTINGS) as daemon:
        await states(daemon, "warm")
        save(path, f"First. {RULES}", f"Second. {RULES}")
        await states(daemon, "warm", "warm")
    warmed = [prompt.partition("system\n")[2][:6] for prompt in host.prompts]
    assert warmed == ["First.", "Second"]


async def test_the_block_begins_although_the_host_is_down(tmp_path: Path) -> None:
    host, path = Host(), tmp_path / "prompts.json"
    host.is_broken = True
    save(path, RULES)
    async with warmd.attach(host, path, SETTINGS) as daemon:
        await states(daemon, "failed")
        host.is_broken = False
        await states(daemon, "warm")


async def test_events_go_to_the_standard_logger(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    host, path = Host(), tmp_path / "prompts.json"
    save(path, RULES)
    with caplog.at_level(logging.INFO, "warmd"):
        async with warmd.attach(host, path, SETTINGS) as daemon:
            await states(daemon, "warm")
    names = [record.getMessage().partition(" ")[0] for record in caplog.records if record.name == "warmd"]
    assert names[:2] == ["daemon.started", "prompts.accepted"]
    assert "entry.warmed" in names
    assert RULES[:20] not in caplog.text


async def test_leaving_the_block_ends_the_daemon_at_once(tmp_path: Path) -> None:
    with anyio.fail_after(PATIENCE):
        async with warmd.attach(Host(), tmp_path / "missing.json", SETTINGS):
            await anyio.sleep(0.05)


async def test_an_error_in_the_block_comes_out_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="mine"):
        async with warmd.attach(Host(), tmp_path / "missing.json", SETTINGS):
            raise LookupError("mine")
