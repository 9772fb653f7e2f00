"""The commands that talk to a daemon, against one that runs."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands.terminal import make_environment, outcome, warmd
from tests.control.daemon_thread import LiveDaemon, live_daemon
from tests.patience import PATIENCE
from tests.test_cli import HEAVY
from tests.test_daemon import entry
from warmd.engines.base import LiveRequest
from warmd.errors import RenderError
from warmd.radix import pack

COMMANDS = ("status", "rewarm", "pause", "resume", "reload")


@pytest.fixture
def state() -> Iterator[Path]:
    """A state folder with a short path, as a socket's has to be."""
    with tempfile.TemporaryDirectory(prefix="warmd-test-") as folder:
        yield Path(folder)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    return tmp_path / "prompts.json"


def ask(state: Path, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return warmd(*args, cwd=state, WARMD_STATE_DIR=str(state), **environment)


def is_applied(live: LiveDaemon, generation: int = 1) -> bool:
    return live.running.daemon.statistics().document.applied >= generation


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_daemon_there_is_one_line_and_exit_code_four(command: str, state: Path) -> None:
    expected = f"warmd: no daemon is running (no socket at {state.resolve()}/control.sock)\n"
    assert outcome(ask(state, command)) == (4, "", expected)


def test_without_a_daemon_watch_ends_too(state: Path) -> None:
    assert ask(state, "status", "--watch").returncode == 4


def test_a_daemon_that_is_gone_is_no_daemon(state: Path, prompts: Path) -> None:
    with live_daemon(state, prompts):
        assert ask(state, "pause").returncode == 0
    assert ask(state, "pause").returncode == 4


def test_status_as_json_is_what_the_daemon_knows(state: Path, prompts: Path) -> None:
    with live_daemon(state, prompts, entry("a"), entry("b", priority=1)) as live:
        live.until(lambda: is_applied(live))
        done = ask(state, "status", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        found = json.loads(done.stdout)
        assert [(line["name"], line["state"]) for line in found["entries"]] == [("a", "warm"), ("b", "warm")]
        assert found["pid"] == os.getpid()
        assert found["document"]["path"] == str(prompts)


def test_status_shows_every_entry_with_its_state(state: Path, prompts: Path) -> None:
    with live_daemon(state, prompts, entry("a"), entry("b"), entry("c")) as live:
        live.do(lambda: live.engine.fail_render("c", RenderError("System role not supported")))
        live.until(lambda: live.running.states().get("b") == "warm")
        live.do(lambda: live.engine.serve("a"))
        live.do(lambda: live.engine.limit_memory(10_000_000))
        done = ask(state, "status")
        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert lines[0].startswith("fake (warmd ")
        assert lines[1] == f"{prompts}: generation 1"
        assert lines[2].startswith("memory [")
        table = [line.split() for line in lines]
        row = next(cells for cells in table if cells[:2] == ["a", "warm"])
        size = live.do(lambda: live.running.status("a").tokens)
        assert row[2:6] == [str(size), str(8 * (size or 0)), "B", "prefill"]
        assert row[-2:] == ["1", str(size)]
        assert any(line.split()[0] == "total" for line in lines if line)


def test_status_tells_why_an_entry_is_not_warm(state: Path, prompts: Path) -> None:
    with live_daemon(state, prompts) as live:
        live.do(lambda: live.engine.fail_render("c", RenderError("System role not supported")))
        live.running.save(entry("c"))
        live.until(lambda: live.running.states() == {"c": "failed"})
        lines = ask(state, "status").stdout.splitlines()
        row = next(line for line in lines if line.startswith("c "))
        assert row.split()[1] == "failed"
        assert row.endswith("  System role not supported")


def test_status_shows_how_far_a_warming_is(state: Path, prompts: Path) -> None:
    with live_daemon(state, prompts) as live:
        gate = live.do(lambda: live.engine.hold("a"))
        live.running.save(entry("a", "x" * 2000))
        live.until(lambda: live.running.states() == {"a": "warming"})
        live.until(lambda: live.running.status("a").done_tokens > 0)
        assert "\nwarming a: 512 of 2," in ask(state, "status").stdout
        live.do(gate.set)


def test_status_suggests_what_comes_cold_again_and_again(state: Path, prompts: Path) -> None:
    with live_daemon(state, prompts) as live:
        request = LiveRequest(pack(range(600)), cached=0, warm=0)
        for _ in range(3):
            live.do(lambda: live.engine.request(request))
        assert "512 tokens, 3 times" in ask(state, "status").stdout


def test_a_name_is_shown_as_it_is(state: Path, prompts: Path) -> None:
    with live_daemon(state, prompts, entry("[red]x :smile: ü")) as live:
        live.until(lambda: is_applied(live))
        assert "\n[red]x :smile: ü  warm" in ask(state, "status").stdout


def test_rewarm_names_what_it_warms(state: Path, prompts: Path) -> None:
    with live_daemon(state, prompts, entry("coder"), entry("shell")) as live:
        live.until(lambda: is_applied(live))
        assert outcome(ask(state, "rewarm", "shell")) == (0, "to be warmed again: shell\n", "")
        assert outcome(ask(state, "rewarm")) == (0, "to be warmed again: coder, shell\n", "")
        expected = "warmd: no entry is named 'codr'; the nearest is 'coder'\n"
        assert outcome(ask(state, "rewarm", "codr")) == (1, "", expected)


def test_pause_and_resume(state: Path, prompts: Path) -> None:
    with live_daemon(state, prompts, entry("a")) as live:
        live.until(lambda: is_applied(live))
        paused = "paused: nothing is warmed until `warmd resume`\n"
        assert outcome(ask(state, "pause")) == (0, paused, "")
        assert paused in ask(state, "status").stdout
        assert outcome(ask(state, "rewarm")) == (0, f"to be warmed again: a\n{paused}", "")
        live.running.save(entry("b"))
        live.until(lambda: live.running.states() == {"b": "pending"})
        assert outcome(ask(state, "resume")) == (0, "resumed\n", "")
        live.until(lambda: live.running.states() == {"b": "warm"})
        assert paused not in ask(state, "status").stdout


def test_reload_tells_what_the_file_says_now(state: Path, prompts: Path) -> None:
    with live_daemon(state, prompts, entry("a")) as live:
        live.until(lambda: is_applied(live))
        live.running.save(entry("b"))
        assert outcome(ask(state, "reload")) == (0, f"{prompts}: generation 2 is in force\n", "")
        prompts.write_text("[\n")
        done = ask(state, "reload")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("prompts.json:2:1: ")
        assert done.stderr.endswith(f"\n{prompts}: generation 2 stays in force\n")
        assert f"{prompts}: the file is wrong, generation 2 stays in force\n" in ask(state, "status").stdout


def test_nothing_that_commands_print_holds_prompt_text(state: Path, prompts: Path) -> None:
    with live_daemon(state, prompts, entry("a", "canary-7f3a " * 99), entry("b", "canary-7f3a")) as live:
        live.until(lambda: is_applied(live))
        done = [ask(state, *args) for args in (["status"], ["status", "--json"], *([c] for c in COMMANDS))]
        assert "canary" not in "".join(each.stdout + each.stderr for each in done)


def watch(state: Path, *args: str, **files: Any) -> subprocess.Popen[bytes]:
    environment = make_environment(state, WARMD_STATE_DIR=str(state), TERM="xterm", COLUMNS="200")
    return subprocess.Popen(
        [sys.executable, "-m", "warmd", "status", "--watch", *args], cwd=state, env=environment, **files
    )


def test_watch_goes_on_until_it_is_interrupted(state: Path, prompts: Path) -> None:
    with (
        live_daemon(state, prompts, entry("a")) as live,
        watch(state, "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watching,
    ):
        assert watching.stdout is not None
        assert watching.stderr is not None
        assert json.loads(watching.stdout.readline())["paused"] is False
        live.do(live.running.daemon.pause)
        while not json.loads(watching.stdout.readline())["paused"]:
            pass
        watching.send_signal(signal.SIGINT)
        assert watching.wait(PATIENCE) == 0
        assert watching.stderr.read() == b""


def test_a_watch_that_no_terminal_shows_ends_with_the_daemon(state: Path, prompts: Path) -> None:
    with live_daemon(state, prompts):
        watching = watch(state, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert watching.stdout is not None
        assert watching.stdout.readline().startswith(b"fake (warmd ")
    _, errors = watching.communicate(timeout=PATIENCE)
    assert watching.returncode == 4
    assert errors.startswith(b"warmd: no daemon is running")


def test_a_watch_on_a_terminal_survives_a_restart_of_the_daemon(state: Path, prompts: Path) -> None:
    ours, theirs = pty.openpty()
    with live_daemon(state, prompts, entry("first")):
        watching = watch(state, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        shown = read_until(ours, b"first")
    shown = read_until(ours, b"no daemon is running")
    with live_daemon(state, prompts, entry("second")):
        shown = read_until(ours, b"second")
        assert b"\x1b[" in shown
        watching.send_signal(signal.SIGINT)
        # It takes back what it did to the terminal.
        read_until(ours, b"\x1b[?1049l")
        assert watching.wait(PATIENCE) == 0
    os.close(ours)


def read_until(terminal: int, text: bytes) -> bytes:
    """Read until something has come; the reads end when the program does."""
    shown = b""
    while text not in shown:
        shown += os.read(terminal, 1 << 16)
    return shown


def test_commands_start_without_what_takes_long(state: Path) -> None:
    script = (
        "import json, sys\n"
        "before = set(sys.modules)\n"
        "from warmd.cli import main\n"
        f"codes = [main([command]) for command in {COMMANDS!r}]\n"
        "print(json.dumps([codes, sorted(set(sys.modules) - before)]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=make_environment(state, WARMD_STATE_DIR=str(state)),
        capture_output=True,
        text=True,
        check=True,
    )
    codes, modules = json.loads(done.stdout)
    assert codes == [4] * len(COMMANDS)
    assert [module for module in modules if module.split(".")[0] in HEAVY] == []
