"""The command line as a whole: which command, which exit code, and an output that ends early."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.terminal import make_environment, outcome, warmd
from tests.patience import PATIENCE
from warmd import __version__, commands
from warmd.cli import COMMANDS, make_parser

HEAVY = (
    "anyio",
    "asyncio",
    "mlx",
    "mlx_lm",
    "numpy",
    "pydantic",
    "rich",
    "structlog",
    "transformers",
    "watchfiles",
)
MODULES = {f"warmd.commands.{command}" for command in COMMANDS}
MINIMAL = '[[{"role": "system", "content": "Answer briefly."}]]'


def test_without_a_command_the_exit_code_is_that_of_usage(tmp_path: Path) -> None:
    done = warmd(cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "warmd: error: the following arguments are required: COMMAND; see `warmd --help`\n"


def test_an_unknown_command_is_a_usage_error_that_names_the_known_ones(tmp_path: Path) -> None:
    done = warmd("warm", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "invalid choice: 'warm'" in done.stderr
    assert all(command in done.stderr for command in ("serve", "check", "schema"))


def test_the_version_is_the_packages_own(tmp_path: Path) -> None:
    assert (0, f"warmd {__version__}\n", "") == outcome(warmd("--version", cwd=tmp_path))


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["logs", "-n", "-1"], "argument -n/--lines: expected at least 0, found -1"),
        (["logs", "-n", "x"], "argument -n/--lines: invalid whole number value: 'x'"),
        (["capture", "a", "--timeout", "0"], "argument --timeout: expected more than 0, found 0"),
        (["capture", "a", "--common", "0"], "argument --common: expected at least 1, found 0"),
        (["install", "--wait", "-1.5"], "argument --wait: expected 0 or more, found -1.5"),
        (["install", "--port", "0"], "argument --port: expected 1 to 65535, found 0"),
        (["bench", "--model", "m", "--rounds", "0"], "argument --rounds: expected at least 1, found 0"),
        (["check", "--kv-bits", "0"], "argument --kv-bits: expected at least 1, found 0"),
    ],
)
def test_a_wrong_number_is_told_with_what_was_expected(
    argv: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        make_parser(argv[:1]).parse_args(argv)
    line = f"warmd {argv[0]}: error: {told}; see `warmd {argv[0]} --help`\n"
    assert (ended.value.code, capsys.readouterr().err) == (2, line)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["serve", "--log-level", "debug"], "DEBUG"),
        (["serve", "--log-level", "Critical"], "CRITICAL"),
        (["sidecar", "--base-url", "http://x", "--log-level", "warning"], "WARNING"),
        (["logs", "--level", "WARNING"], "warning"),
    ],
)
def test_a_level_is_taken_in_any_case(argv: list[str], expected: str) -> None:
    args = vars(make_parser(argv[:1]).parse_args(argv))
    assert expected == args["level" if argv[0] == "logs" else "log_level"]


def test_the_help_lists_every_command(tmp_path: Path) -> None:
    done = warmd("--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"\n    {command} " in done.stdout for command in ("serve", "check", "schema"))


@pytest.mark.parametrize("flag", ["--bogus", "--js", "--mod=x", "--jsonn"])
def test_a_flag_that_check_does_not_know_is_a_usage_error(flag: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(MINIMAL)
    done = warmd("check", "p.json", flag, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    expected = f"warmd check: error: unrecognized arguments: {flag}; see `warmd check --help`\n"
    assert done.stderr == expected


def test_a_second_file_is_a_usage_error(tmp_path: Path) -> None:
    done = warmd("check", "a.json", "b.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "warmd check: error: unrecognized arguments: b.json; see `warmd check --help`\n"


NOT_TAKEN = {
    ("--kv-bitz", "4"): "unrecognized arguments: --kv-bitz 4",
    ("--por", "1"): "unrecognized arguments: --por 1",
    ("--port", "web"): "argument --port: expected a whole number, found 'web'",
    ("--temp", "hot"): "argument --temp: expected a number, found 'hot'",
    ("--chat-template-args", "{bad"): (
        "argument --chat-template-args: expected a JSON object, found no valid JSON"
    ),
    ("--chat-template-args", "[1]"): "argument --chat-template-args: expected a JSON object, found a list",
    (
        "--prompt-cache-bytes",
        "lots",
    ): "argument --prompt-cache-bytes: expected a size such as 2GB, found 'lots'",
}


def test_a_flag_that_the_server_does_not_take_is_one_line(models: dict[str, Path], tmp_path: Path) -> None:
    # In one process: each would import mlx-lm for its own parser.
    code = f"""
from warmd.cli import main
for arguments in {[*NOT_TAKEN]}:
    try:
        code = main(["serve", "--model", {str(models["llama"])!r}, *arguments])
    except SystemExit as ended:
        code = ended.code
    assert code == 2, (arguments, code)
"""
    told = "".join(f"warmd serve: error: {each}; see `warmd serve --help`\n" for each in NOT_TAKEN.values())
    assert run_code(code, tmp_path) == (0, "", told)


@pytest.mark.parametrize("command", ["check", "serve"])
def test_a_negative_size_is_a_value_and_no_flag(command: str, tmp_path: Path) -> None:
    done = warmd(command, "--memory-limit", "-5GB", cwd=tmp_path)
    expected = "expected auto or a size such as 12GB or 800MiB, found '-5GB'"
    assert outcome(done) == (2, "", f"warmd: --memory-limit: {expected}\n")


def test_a_command_s_error_names_its_own_help(tmp_path: Path) -> None:
    done = warmd("capture", cwd=tmp_path)
    expected = "the following arguments are required: NAME; see `warmd capture --help`"
    assert outcome(done) == (2, "", f"warmd capture: error: {expected}\n")


def test_serve_without_a_model_is_a_usage_error(tmp_path: Path) -> None:
    expected = "warmd: serve needs --model M (a model folder or Hugging Face name), or --demo\n"
    assert (2, "", expected) == outcome(warmd("serve", cwd=tmp_path))


def test_a_broken_setting_is_a_usage_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(MINIMAL)
    (tmp_path / "warmd.toml").write_text("[prompts]\nmax_bytes = 'many'\n")
    done = warmd("check", "p.json", cwd=tmp_path, WARMD_CONFIG=str(tmp_path / "warmd.toml"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("warmd: ")


def test_each_broken_setting_has_its_own_line(tmp_path: Path) -> None:
    config = tmp_path / "warmd.toml"
    config.write_text("[prompts]\nmax_bytes = 0\n[watch]\npoll = 1\nsettle = -1\n")
    done = warmd("check", "p.json", cwd=tmp_path, WARMD_CONFIG=str(config))
    expected = [
        f"warmd: {config}: [prompts] max_bytes: expected at least 1, found 0",
        f"warmd: {config}: [watch] poll: expected true or false, found a whole number",
        f"warmd: {config}: [watch] settle: expected at least 0, found -1.0",
    ]
    assert (2, "", "\n".join(expected) + "\n") == outcome(done)


def test_the_list_of_commands_imports_none_of_them(tmp_path: Path) -> None:
    code, modules = imported(["--help"], tmp_path)
    assert (code, [module for module in modules if module in MODULES]) == (0, [])


def test_every_command_is_a_module_and_every_module_a_command() -> None:
    described = {
        module.name for module in pkgutil.iter_modules(commands.__path__) if has_command(module.name)
    }
    assert described == set(COMMANDS)


def has_command(name: str) -> bool:
    return hasattr(importlib.import_module(f"warmd.commands.{name}"), "add_arguments")


def test_check_imports_nothing_that_takes_long(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(MINIMAL)
    code, modules = imported(["check", "p.json", "--json"], tmp_path)
    assert code == 0
    assert [module for module in modules if module.split(".")[0] in HEAVY] == []


def imported(arguments: list[str], folder: Path) -> tuple[int, list[str]]:
    """Run a command line in a process of its own; the exit code, and what it has imported."""
    script = (
        "import json, sys\n"
        # Packages may put hooks into site, which are none of warmd's imports.
        "before = set(sys.modules)\n"
        "from warmd.cli import main\n"
        "try:\n"
        f"    code = main({arguments!r})\n"
        "except SystemExit as end:\n"
        "    code = end.code\n"
        "print(json.dumps([code, sorted(set(sys.modules) - before)]), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env=make_environment(folder),
        capture_output=True,
        text=True,
        check=True,
    )
    code, modules = json.loads(done.stderr)
    return code, modules


def _pipe_into_nobody(tmp_path: Path, *args: str) -> tuple[int, bytes]:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "warmd", *args],
        cwd=tmp_path,
        env=make_environment(tmp_path),
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    return done.returncode, done.stderr


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    assert _pipe_into_nobody(tmp_path, "schema") == (0, b"")


def test_a_reader_that_goes_away_leaves_no_traceback_of_check(tmp_path: Path) -> None:
    entries = [[{"role": "system", "content": "x"}]] * 2000
    (tmp_path / "p.json").write_text(json.dumps(entries))
    assert _pipe_into_nobody(tmp_path, "check", "p.json") == (0, b"")


def test_a_closed_output_does_not_change_the_verdict(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(MINIMAL)
    command = f'"{sys.executable}" -m warmd check p.json >&-'
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=tmp_path,
        env=make_environment(tmp_path),
        stderr=subprocess.PIPE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_under_the_output_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(MINIMAL)
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "warmd", "check", "p.json"],
            cwd=tmp_path,
            env=make_environment(tmp_path),
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, b"warmd: cannot write the output: No space left on device\n")


def test_a_name_that_the_terminal_cannot_show_is_escaped(tmp_path: Path) -> None:
    entry = {"name": "prüfer", "messages": [{"role": "system", "content": "x"}]}
    (tmp_path / "p.json").write_text(json.dumps([entry]))
    done = warmd("check", "p.json", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "pr\\xfcfer" in done.stdout


def test_schema_prints_the_schema(tmp_path: Path) -> None:
    done = warmd("schema", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["title"] == "warmd prompts"


INTERRUPTED = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path, target=None):
        if name == "warmd.commands.check":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
from warmd.cli import main
sys.exit(main(["check", "x.json"]))
"""


def run_code(code: str, home: Path) -> tuple[int, str, str]:
    """How a program of a few lines ends."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=make_environment(home),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return outcome(done)


def test_ctrl_c_while_a_command_is_imported_is_no_traceback(tmp_path: Path) -> None:
    assert run_code(INTERRUPTED, tmp_path) == (130, "", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("command", ["serve", "sidecar"])
def test_a_daemon_that_is_stopped_while_it_is_imported_ends_with_zero(
    command: str, number: signal.Signals, tmp_path: Path
) -> None:
    code = INTERRUPTED.replace("SIGINT", number.name).replace("check", command)
    assert run_code(code, tmp_path) == (0, "", "")
