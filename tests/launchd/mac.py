"""A home folder in which `launchctl` is the stand-in, and warmd's commands run there."""

from __future__ import annotations

import json
import os
import plistlib
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from tests.commands.terminal import warmd
from tests.patience import wait_until
from tests.serving.process import free_port
from warmd.launchd.places import LABEL

PROGRAM = Path(__file__).with_name("launchctl_program.py")
UID = os.getuid()


class Mac:
    """A Mac of sorts."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.launchd = home / "launchd"
        self.launchd.mkdir()
        programs = home / "bin"
        programs.mkdir()
        program = programs / "launchctl"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{PROGRAM}" "$@"\n')
        program.chmod(0o755)
        self.environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "FAKE_LAUNCHD": str(self.launchd),
            # The service gets nothing from here but what its file says.
            "WARMD_STATE_DIR": str(home / "s"),
        }

    @property
    def plist(self) -> Path:
        """The LaunchAgent's file."""
        return self.home / "Library" / "LaunchAgents" / f"{LABEL}.plist"

    @property
    def calls(self) -> list[str]:
        """What launchctl was asked to do, without mere looks."""
        path = self.launchd / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if not line.startswith(("print ", "enable "))]

    def answer(self, **codes: list[int]) -> None:
        """Have bootstrap in `gui` or `user` end with these codes first."""
        answers = {f"bootstrap {domain}/{UID}": listed for domain, listed in codes.items()}
        (self.launchd / "answers.json").write_text(json.dumps(answers))

    def run(self, *arguments: str, **environment: str) -> CompletedProcess[str]:
        """Run a command of warmd."""
        return warmd(*arguments, cwd=self.home, **{**self.environment, **environment})

    def install(self, *arguments: str, **environment: str) -> CompletedProcess[str]:
        """Install for a model that is not there: the process ends, and the job stays loaded."""
        port = str(free_port())
        return self.run("install", "--model", "a/b", "--port", port, "--wait", "0", *arguments, **environment)

    def wait_for_end(self) -> None:
        """Until the service's process has ended."""
        job = self.launchd / f"gui+{UID}+{LABEL}.json"
        wait_until(lambda: json.loads(job.read_text())["exit"] is not None)


def read_plist(path: Path) -> dict[str, Any]:
    """What is in a plist."""
    return dict(plistlib.loads(path.read_bytes()))
