"""The command line as a process: fast, and never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.prompts.files import SYSTEM, write
from warmd import __version__

HEAVY = {
    "mlx",
    "mlx_lm",
    "transformers",
    "numpy",
    "pydantic",
    "rich",
    "anyio",
    "asyncio",
    "structlog",
    "watchfiles",
}


def warmd(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "warmd", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "WARMD_CONFIG": "", **environment},
    )


@pytest.mark.parametrize("command", [["check"], ["schema"], ["check", "--json"]])
def test_commands_that_need_no_model_import_nothing_heavy(tmp_path: Path, command: list[str]) -> None:
    arguments = [*command, str(write(tmp_path, [[SYSTEM]]))] if command[0] == "check" else command
    program = (
        "import sys; from warmd.cli import main; code = main(sys.argv[1:]); "
        "print(*sorted(sys.modules), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    assert set() == {name.partition(".")[0] for name in done.stderr.split()} & HEAVY


def test_the_version_is_printed() -> None:
    done = warmd("--version")
    assert (0, f"warmd {__version__}\n", "") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["check", "--no-such-flag"]])
def test_wrong_usage_ends_with_2(arguments: list[str]) -> None:
    done = warmd(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "usage: warmd" in done.stderr


def test_the_help_names_every_command() -> None:
    done = warmd("--help")
    assert done.returncode == 0
    assert all(f"\n    {command} " in done.stdout for command in ("serve", "check", "schema"))


def test_one_of_our_errors_is_one_line() -> None:
    done = warmd("check", WARMD_WARM_CONCURRENCY="many")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("warmd: WARMD_WARM_CONCURRENCY: ")


def test_a_reader_that_stops_reading_gets_no_traceback() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "warmd", "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == b""
    process.wait()


def test_a_terminal_without_the_characters_of_a_name_still_gets_the_table(tmp_path: Path) -> None:
    path = write(tmp_path, [{"name": "é", "messages": [SYSTEM]}])
    done = warmd("check", str(path), PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\xe9" in done.stdout
