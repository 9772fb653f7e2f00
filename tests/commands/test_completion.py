"""Completion scripts, in the shells themselves where they are installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.commands.terminal import warmd
from warmd.cli import COMMANDS

BASH = """
source ./script
COMP_WORDS=({words}); COMP_CWORD={place}
_shtab_warmd "" "${{COMP_WORDS[COMP_CWORD]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
FISH = "source ./script; complete -C '{line}'"
ZSH = "fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -d ./dump; print $_comps[warmd]"


def script(tmp_path: Path, shell: str) -> None:
    done = warmd("completion", shell, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "script").write_text(done.stdout)


def run(shell: str, code: str, cwd: Path) -> list[str]:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-c", code], cwd=cwd, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_bash(tmp_path: Path) -> None:
    script(tmp_path, "bash")
    assert set(COMMANDS) <= set(run("bash", BASH.format(words='warmd ""', place=1), tmp_path))
    assert run("bash", BASH.format(words="warmd inst", place=1), tmp_path) == ["install"]
    flags = run("bash", BASH.format(words="warmd status --", place=2), tmp_path)
    assert set(flags) == {"--help", "--json", "--watch"}


def test_fish(tmp_path: Path) -> None:
    script(tmp_path, "fish")
    commands = [line.split("\t")[0] for line in run("fish", FISH.format(line="warmd "), tmp_path)]
    assert set(COMMANDS) <= set(commands)
    assert run("fish", FISH.format(line="warmd inst"), tmp_path) == ["install\trun as a Mac service"]


def test_zsh(tmp_path: Path) -> None:
    script(tmp_path, "zsh")
    (tmp_path / "script").rename(tmp_path / "_warmd")
    assert run("zsh", "zsh -n ./_warmd", tmp_path) == []
    assert run("zsh", ZSH, tmp_path) == ["_warmd"]


def test_an_unknown_shell_is_a_usage_error(tmp_path: Path) -> None:
    done = warmd("completion", "cmd", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "invalid choice: 'cmd'" in done.stderr
