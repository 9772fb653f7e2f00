"""Runs warmd's command line as a user does: another process, its output and its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE


def warmd(*args: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m warmd`` with a settings file that does not exist unless one is named."""
    return subprocess.run(
        [sys.executable, "-m", "warmd", *args],
        cwd=cwd,
        env=make_environment(cwd, **environment),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def make_environment(home: Path, **environment: str) -> dict[str, str]:
    """This process's environment without its own settings, and with this source tree importable."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WARMD_")}
    root = str(Path(__file__).parents[2])
    return {**kept, "HOME": str(home), "PYTHONPATH": root, "HF_HUB_OFFLINE": "1", **environment}


def outcome(done: subprocess.CompletedProcess[str]) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    return done.returncode, done.stdout, done.stderr


def error_json(line: int | None, column: int | None, path: str, message: str) -> dict[str, Any]:
    """One error as `--json` prints it."""
    return {"line": line, "column": column, "path": path, "message": message}
