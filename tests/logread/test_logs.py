"""`warmd logs`, as its user sees it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands.terminal import make_environment, outcome, warmd
from tests.patience import PATIENCE

LINES: list[dict[str, Any]] = [
    {
        "ts": "2026-01-02T03:04:05.678901Z",
        "level": "info",
        "event": "entry.warmed",
        "entry": "coder",
        "tokens": 89,
    },
    {
        "ts": "2026-01-02T03:04:06.000000Z",
        "level": "warning",
        "event": "entry.lost",
        "entry": "shell",
        "tokens": 7,
    },
    {
        "ts": "2026-01-02T03:04:07.000000Z",
        "level": "error",
        "event": "prompts.rejected",
        "sha256": "ab",
        "kept_generation": 3,
        "errors": [{"line": 1, "column": 2, "path": "$", "message": "expected a list"}],
    },
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / ".local/state/warmd/log/warmd.jsonl"
    path.parent.mkdir(parents=True)
    path.with_name("warmd.jsonl.1").write_text(f"{json.dumps(LINES[0])}\n")
    path.write_text("".join(f"{json.dumps(line)}\n" for line in LINES[1:]))
    return path


def logs(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return warmd("logs", *arguments, cwd=home, TZ="UTC")


def test_lines_are_pretty_and_in_local_time(log: Path, tmp_path: Path) -> None:
    expected = """\
01-02 03:04:05 [info     ] entry.warmed       entry=coder tokens=89
01-02 03:04:06 [warning  ] entry.lost         entry=shell tokens=7
01-02 03:04:07 [error    ] prompts.rejected   sha256=ab kept_generation=3
    1:2  $  expected a list
"""
    assert outcome(logs(tmp_path)) == (0, expected, "")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), [0, 1, 2]),
        (("--entry", "shell"), [1]),
        (("--level", "warning"), [1, 2]),
        (("-n", "2"), [1, 2]),
        (("-n", "1", "--level", "info", "--entry", "coder"), [0]),
        (("-n", "0"), []),
    ],
)
def test_what_is_wanted_is_shown(
    arguments: tuple[str, ...], expected: list[int], log: Path, tmp_path: Path
) -> None:
    done = logs(tmp_path, "--json", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [LINES[index] for index in expected]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ("--entry", "codr"),
            1,
            "warmd: no line in {path} is about an entry 'codr'; the nearest known one is 'coder'",
        ),
        (("--entry", "nosuch", "--json"), 1, "warmd: no line in {path} is about an entry 'nosuch'"),
        (
            ("--entry", "coder", "--level", "error"),
            0,
            "no lines about 'coder' of level error or above in {path}",
        ),
    ],
)
def test_where_nothing_is_shown_one_line_says_why(
    arguments: tuple[str, ...], code: int, message: str, log: Path, tmp_path: Path
) -> None:
    assert outcome(logs(tmp_path, *arguments)) == (code, "", f"{message.format(path=log)}\n")


def test_what_is_no_event_is_shown_as_it_is_without_what_would_steer_a_terminal(
    log: Path, tmp_path: Path
) -> None:
    log.write_text('Traceback\x1b[31m\n[1, 2]\n{"ts": 5}\n\n')
    log.with_name("warmd.jsonl.1").unlink()
    assert outcome(logs(tmp_path)) == (0, 'Traceback [31m\n[1, 2]\n{"ts": 5}\n', "")
    assert outcome(logs(tmp_path, "--json")) == (0, "", f"no lines in {log}\n")


def test_without_a_log_there_is_one_line(tmp_path: Path) -> None:
    expected = f"warmd: no log yet at {tmp_path}/.local/state/warmd/log/warmd.jsonl; --follow waits for it\n"
    assert outcome(logs(tmp_path)) == (1, "", expected)


def test_a_log_that_cannot_be_read_is_one_line(log: Path, tmp_path: Path) -> None:
    log.parent.rename(tmp_path / "elsewhere")
    log.parent.write_text("no folder")
    assert logs(tmp_path).returncode == 1


def test_following_shows_what_comes_until_it_is_interrupted(log: Path, tmp_path: Path) -> None:
    following = subprocess.Popen(
        [sys.executable, "-m", "warmd", "logs", "-f", "--json", "--entry", "late"],
        env=make_environment(tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert following.stdout is not None
    with following:
        for number in range(3):
            log.rename(log.with_name(f"warmd.jsonl.{9 - number}"))
            line = json.dumps({**LINES[0], "entry": "late", "tokens": number})
            log.write_text(f"{line}\n")
            assert following.stdout.readline() == f"{line}\n"
        following.send_signal(signal.SIGINT)
        assert following.wait(PATIENCE) == 0


def test_reading_a_log_needs_no_engine(log: Path, tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from warmd.cli import main\n"
        "code = main(['logs'])\n"
        "heavy = {'mlx', 'mlx_lm', 'transformers', 'numpy', 'anyio'}\n"
        "sys.exit(code or ', '.join(heavy & set(sys.modules)) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=make_environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "fields",
    [
        {"errors": 5},
        {"errors": {"a": 1}},
        {"errors": [[1], None]},
        {"stack": 5},
        {"exc_info": 5, "stack_info": [1], "exception": {"a": 1}},
        {"logger": 3, "logger_name": None, "positional_args": [1]},
        {"\x1b[2Jkey": 1, "two\nlines": "\x1b[2J"},
    ],
)
def test_whatever_a_line_has_it_is_one_line_that_a_terminal_shows(
    fields: dict[str, Any], log: Path, tmp_path: Path
) -> None:
    log.write_text(f"{json.dumps({**LINES[0], **fields})}\n")
    done = logs(tmp_path, "--level", "info")
    assert (done.returncode, done.stderr) == (0, "")
    assert [char for char in done.stdout if not char.isprintable() and char != "\n"] == []
    assert done.stdout.splitlines()[1].startswith("01-02 03:04:05 [info     ] entry.warmed       ")


def test_any_number_of_lines_may_be_asked_for(log: Path, tmp_path: Path) -> None:
    assert len(logs(tmp_path, "-n", "9" * 30).stdout.splitlines()) == 4


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_an_output_that_takes_nothing_is_not_the_logs_fault(log: Path, tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = subprocess.run(
            [sys.executable, "-m", "warmd", "logs"],
            cwd=tmp_path,
            env=make_environment(tmp_path),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (done.returncode, done.stderr) == (1, "warmd: cannot write the output: No space left on device\n")
