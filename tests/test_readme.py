"""What the README and docs/ show is true."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import uvicorn

import warmd
from tests.pages import PAGES, README, ROOT, all_blocks, blocks, section
from tests.serving.process import free_port
from tests.test_embed import RULES, Host
from warmd.cli import make_parser
from warmd.prompts import load_document

HOSTS = PAGES["docs/hosts.md"]


def test_its_prompts_file_is_valid(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "coder.md").write_text("Be careful.")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "coder.json").write_text("[]")
    (tmp_path / "prompts.json").write_text(blocks(README, "json")[0])
    assert [entry.name for entry in load_document(tmp_path / "prompts.json").entries] == ["#0", "coder"]


def test_its_commands_have_only_flags_that_exist() -> None:
    commands = [
        shlex.split(line.strip().lstrip("$ "))
        for block in [*all_blocks("sh"), *all_blocks("console")]
        for part in block.split("&&")
        for line in part.splitlines()
        if re.match(r"\s*(\$ )?(\.venv/bin/)?warmd ", line)
    ]
    assert {command[1] for command in commands} >= {"serve", "check", "status", "install", "sidecar", "bench"}
    for command in commands:
        args, more = make_parser().parse_known_args(command[1:])
        assert callable(args.run)
        assert more == []


async def test_its_host_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "prompts.json").write_text(json.dumps([[{"role": "system", "content": RULES}]]))
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    source = blocks(HOSTS, "python")[0].replace("...", "await wait_until_warm(daemon)")

    async def wait_until_warm(daemon: warmd.Daemon) -> None:
        with anyio.fail_after(20):
            while [entry.state for entry in daemon.statistics().entries] != ["warm"]:  # noqa: ASYNC110
                await anyio.sleep(0.01)

    namespace["wait_until_warm"] = wait_until_warm
    exec(compile(source, "hosts.md", "exec"), namespace)
    host = Host()
    await namespace["serve"](host)
    assert len(host.prompts) == 1


async def test_its_fastapi_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "prompts.json").write_text(json.dumps([[{"role": "system", "content": RULES}]]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WARMD_CONFIG", "")
    host = Host()
    namespace: dict[str, Any] = {"engine": host}
    source = blocks(HOSTS, "python")[1]
    assert len([line for line in source.splitlines() if line]) <= 15
    exec(compile(source, "hosts.md", "exec"), namespace)
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(namespace["app"], port=port, log_level="critical"))
    async with anyio.create_task_group() as tasks, httpx2.AsyncClient() as client:
        tasks.start_soon(server.serve)
        with anyio.fail_after(20):
            while not server.started:  # noqa: ASYNC110 - it offers no event
                await anyio.sleep(0.01)
            url = f"http://127.0.0.1:{port}/warm"
            while (await client.get(url)).json() != {"#0": "warm"}:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        server.should_exit = True
    assert len(host.prompts) == 1


def test_every_dependency_has_its_reason() -> None:
    metadata = (ROOT / "pyproject.toml").read_text("utf-8")
    listed = re.search(r"\ndependencies = \[(.*?)\n\]", metadata, re.DOTALL)
    assert listed is not None
    packages = {
        re.split(r"[>\[;]", name)[0] for name in re.findall(r'^\s+"([^"]+)"', listed.group(1), re.MULTILINE)
    }
    table = section(README, "Dependencies")
    assert [name for name in sorted(packages) if not re.search(rf"\b{name}\b", table)] == []


def test_what_is_exported_is_there() -> None:
    assert [name for name in warmd.__all__ if getattr(warmd, name, None) is None] == []
