"""What goes wrong around a daemon, for real: bare environments, full and read-only disks, no file events."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.serving.process import Server, cached, free_port, serving, write
from tests.serving.test_control import named
from tests.serving.test_lifecycle import answers

RULES = "You are a careful reviewer of code. " * 20


@functools.cache
def can_unshare() -> bool:
    """Whether file systems can be mounted and limits set for one process, which needs Linux's namespaces."""
    if shutil.which("unshare") is None:
        return False
    script = "mount -t tmpfs tmpfs /mnt && echo 9 > /proc/sys/user/max_inotify_instances"
    done = subprocess.run(["unshare", "-Urm", "sh", "-c", script], capture_output=True, timeout=PATIENCE)
    return done.returncode == 0


needs_namespaces = pytest.mark.skipif(not can_unshare(), reason="needs Linux's user and mount namespaces")


def within(script: str) -> list[str]:
    """A prefix that prepares a world of its own for a command."""
    return ["unshare", "-Urm", "sh", "-ec", f'{script}\nexec "$@"', "sh"]


def asks(server: Server) -> int:
    """How much of a request that begins like an entry is served from the cache."""
    messages = [{"role": "system", "content": RULES}, {"role": "user", "content": "x"}]
    return cached(server.chat(messages, max_tokens=1))


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def without_time(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key != "ts"}


def test_without_a_home_in_the_root_folder_and_with_a_bare_environment_it_serves(
    models: dict[str, Path], tmp_path: Path
) -> None:
    write(tmp_path / "prompts.json", [named("a", RULES)])
    environment = {"WARMD_LOG_FILE": str(tmp_path / "log" / "warmd.jsonl")}
    with serving(
        models["llama"], tmp_path / "prompts.json", environment=environment, is_bare=True, cwd=Path("/")
    ) as server:
        server.wait_for("entry.warmed")
        assert asks(server) > 0
        assert server.stop() == 0
        assert server.seen("state.failed") == server.seen("control.failed") == []


@needs_namespaces
def test_without_file_events_it_polls_with_one_warning(models: dict[str, Path], tmp_path: Path) -> None:
    write(tmp_path / "prompts.json", [named("a", RULES)])
    prefix = within("echo 0 > /proc/sys/user/max_inotify_instances")
    with serving(models["llama"], tmp_path / "prompts.json", prefix=prefix) as server:
        server.wait_for("entry.warmed", entry="a")
        for name in ("b", "c"):
            write(tmp_path / "prompts.json", [named(name, f"{name} {RULES}")])
            server.wait_for("entry.warmed", entry=name)
        assert [line["level"] for line in server.seen("watch.degraded")] == ["warning"]
        assert server.stop() == 0


@needs_namespaces
@pytest.mark.parametrize("kind", ["read-only", "full"])
def test_a_state_folder_that_takes_nothing_costs_one_warning(
    models: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    write(tmp_path / "prompts.json", [named("a", RULES)])
    folder = tmp_path / "state"
    folder.mkdir()
    script = f"mount -t tmpfs -o size=16k tmpfs {folder}\n"
    if kind == "full":
        script += f"head -c 99999 /dev/zero > {folder}/fill 2>/dev/null || true"
    else:
        script += f"mount -o remount,ro {folder}"
    state = {"WARMD_STATE_DIR": str(folder)}
    with serving(
        models["llama"], tmp_path / "prompts.json", environment=state, prefix=within(script)
    ) as server:
        server.wait_for("entry.warmed")
        assert asks(server) > 0
        assert server.stop() == 0
        warnings = [line["event"] for line in map(json.loads, server.lines) if line["level"] == "warning"]
        assert warnings == ["control.failed"]


@needs_namespaces
def test_a_disk_that_fills_up_costs_log_lines_and_marks_and_nothing_else(
    models: dict[str, Path], tmp_path: Path
) -> None:
    write(tmp_path / "prompts.json", [named("a", RULES)])
    folder = tmp_path / "disk"
    folder.mkdir()
    environment = {"WARMD_STATE_DIR": str(folder), "WARMD_LOG_FILE": str(folder / "warmd.jsonl")}
    # When it is told to, another program takes all room that is left.
    fill = f"for _ in $(seq 600); do [ -e {tmp_path}/now ] && break; sleep 0.1; done; cat /dev/zero"
    script = f"mount -t tmpfs -o size=64k tmpfs {folder}\n({fill}) > {folder}/fill 2>/dev/null &"
    with serving(
        models["llama"], tmp_path / "prompts.json", environment=environment, prefix=within(script)
    ) as server:
        server.wait_for("entry.warmed", entry="a")
        (tmp_path / "now").touch()
        while not server.seen("log.failed"):
            # Each request is a line of the log.
            asks(server)
            time.sleep(0.05)
        write(tmp_path / "prompts.json", [named("a", RULES), named("b", RULES * 2)])
        server.wait_for("entry.warmed", entry="b")
        assert asks(server) > 0
        assert len(server.seen("log.failed")) == len(server.seen("state.failed")) == 1
        assert server.stop() == 0


def test_the_log_file_has_what_standard_error_has_wherever_it_goes(
    models: dict[str, Path], tmp_path: Path
) -> None:
    prompts, log = tmp_path / "prompts.json", tmp_path / "log" / "warmd.jsonl"
    write(prompts, [named("a", RULES)])
    with serving(models["llama"], prompts, environment={"WARMD_LOG_FILE": str(log)}) as server:
        server.wait_for("entry.warmed", entry="a")
        log.rename(tmp_path / "before")
        write(prompts, [named("b", "Be brief. " * 9)])
        server.wait_for("entry.warmed", entry="b")
        assert server.stop() == 0
    found = [*events(tmp_path / "before"), *events(log)]
    assert list(map(without_time, found)) == list(map(without_time, map(json.loads, server.lines)))


def test_under_launchd_only_errors_also_go_to_standard_error(models: dict[str, Path], tmp_path: Path) -> None:
    prompts, log = tmp_path / "prompts.json", tmp_path / "log" / "warmd.jsonl"
    write(prompts, [named("a", RULES)])
    environment = {"WARMD_LOG_FILE": str(log), "XPC_SERVICE_NAME": "dev.warmd"}
    with serving(models["llama"], prompts, environment=environment) as server:
        assert answers(server.port)
        prompts.write_text("[")
        server.wait_for("prompts.rejected")
        assert server.stop() == 0
    assert [json.loads(line)["event"] for line in server.lines] == ["prompts.rejected"]
    assert events(log)[-1]["event"] == "daemon.stopped"


def test_a_reader_of_standard_error_that_goes_away_hurts_nobody(
    models: dict[str, Path], tmp_path: Path
) -> None:
    log, port = tmp_path / "warmd.jsonl", free_port()
    write(tmp_path / "prompts.json", [named("a", RULES)])
    reading, writing = os.pipe()
    files = ["--model", str(models["llama"]), "--prompts", str(tmp_path / "prompts.json")]
    command = [sys.executable, "-m", "warmd", "serve", *files, "--port", str(port)]
    with subprocess.Popen(command, stderr=writing, env={**os.environ, "WARMD_LOG_FILE": str(log)}) as process:
        os.close(writing)
        os.close(reading)
        try:
            assert answers(port)
            # That may be before it follows signals.
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
    assert events(log)[-1]["event"] == "daemon.stopped"


def test_an_unknown_key_of_the_settings_names_the_nearest_known_one(tmp_path: Path) -> None:
    config = tmp_path / "warmd.toml"
    config.write_text("[log]\nkeeps = 3\n")
    done = subprocess.run(
        [sys.executable, "-m", "warmd", "serve", "--model", "x"],
        env={**os.environ, "WARMD_CONFIG": str(config)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    expected = f"warmd: {config}: [log] keeps: unknown key; the nearest known one is [log] keep\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)
