"""launchctl: the one place that talks to launchd.

What it says is read as macOS prints it (`launchctl print`, its exit codes). Never run on macOS so far: the
tests give it an executable of that name, which behaves as the manual page and people's reports say.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from warmd.errors import CannotStartError, WarmdError
from warmd.text import one_line

SECONDS = 60.0
"""What launchctl gets for one answer; it waits for nothing by itself."""

_FIELD = re.compile(r"^\t(?P<key>[a-z][a-z ]*) = (?P<value>.*)$", re.MULTILINE)
_BLOCK = r"^\t{} = \{{\n(?P<lines>(?:\t\t.*\n)*)\t\}}$"
_ARGUMENTS, _ENVIRONMENT = (
    re.compile(_BLOCK.format(name), re.MULTILINE) for name in ("arguments", "environment")
)
_SETTINGS: Mapping[str, str] = {
    "StandardOutPath": "stdout path",
    "StandardErrorPath": "stderr path",
    "ThrottleInterval": "minimum runtime",
    "ExitTimeOut": "exit timeout",
}
"""Keys of a LaunchAgent that launchd tells of, and what it calls them."""


class NoLaunchctlError(CannotStartError):
    """This is no Mac."""

    def __init__(self) -> None:
        super().__init__(
            "there is no launchctl here: this needs macOS (elsewhere, let a supervisor such as systemd "
            "run `warmd serve`)"
        )


class LaunchctlError(WarmdError):
    """launchctl refused, or gave no answer."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"launchctl {what}: {reason}")


@dataclass(frozen=True, slots=True)
class Answer:
    """What launchctl ended with and what it said."""

    code: int
    output: str = ""

    @property
    def reason(self) -> str:
        """In one line, for a person."""
        lines = self.output.strip().splitlines()
        return one_line(lines[0]) if lines else f"exit code {self.code}"


class Launchctl:
    """Runs launchctl."""

    def run(self, *arguments: str) -> Answer:
        """Run one subcommand to its end.

        Raises:
            NoLaunchctlError: It is not on PATH.
            LaunchctlError: It gave no answer in time.
        """
        executable = shutil.which("launchctl")
        if executable is None:
            raise NoLaunchctlError
        try:
            done = subprocess.run(
                [executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                # Whatever the shell's locale is.
                encoding="utf-8",
                errors="replace",
                timeout=SECONDS,
                check=False,
                # A terminal's ctrl-C is for us, and not for launchctl in the midst of something.
                process_group=0,
            )
        except subprocess.TimeoutExpired:
            raise LaunchctlError(arguments[0], f"no answer within {SECONDS:g} s") from None
        except OSError as error:
            raise LaunchctlError(arguments[0], error.strerror or str(error)) from None
        return Answer(done.returncode, done.stdout)


@dataclass(frozen=True, slots=True)
class JobState:
    """What launchd says about a loaded job.

    Attributes:
        pid: Of its process; None while there is none.
        runs: How often it was started since it was loaded.
        last_exit: The exit code of its last process, None where there was none yet or a signal ended it.
        last_signal: The signal that ended its last process, as launchd names it.
        arguments: Its command line as it was loaded; empty when launchd does not tell.
        environment: Its variables as they were loaded; None when launchd does not tell.
        settings: Other keys of its file as they were loaded, as text; those that launchd tells.
    """

    pid: int | None = None
    runs: int = 0
    last_exit: int | None = None
    last_signal: str | None = None
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_ended(self) -> bool:
        """True when its last process has ended, whatever with, and no other runs now."""
        return self.pid is None and self.runs > 0 and self.last_end is not None

    @property
    def last_end(self) -> str | None:
        """How its last process ended, for a person; None where none has."""
        if self.last_signal is not None:
            return f"signal {self.last_signal}"
        return None if self.last_exit is None else f"exit code {self.last_exit}"


def parse_print(output: str) -> JobState:
    """Read what `launchctl print gui/UID/LABEL` says; what is missing or new is left at its default.

    Only the job's own lines count, which begin with one tab: blocks within have the same keys.
    """
    found = {match["key"]: match["value"].strip() for match in _FIELD.finditer(output)}
    arguments = _lines(_ARGUMENTS.search(output))
    environment = _lines(_ENVIRONMENT.search(output))
    return JobState(
        pid=_number(found.get("pid")),
        runs=_number(found.get("runs")) or 0,
        # "(never exited)", or a number that may be followed by its name, as in "78: EX_CONFIG".
        last_exit=_number(found.get("last exit code")),
        last_signal=one_line(signal) if (signal := found.get("last terminating signal")) else None,
        arguments=tuple(arguments or ()),
        environment=None if environment is None else _variables(environment),
        settings={key: found[name] for key, name in _SETTINGS.items() if name in found},
    )


def _lines(block: re.Match[str] | None) -> list[str] | None:
    return [line[2:] for line in block["lines"].split("\n")[:-1]] if block is not None else None


def _variables(lines: Sequence[str]) -> dict[str, str]:
    parts = (line.partition(" => ") for line in lines)
    return {name: value for name, arrow, value in parts if arrow}


def _number(text: str | None) -> int | None:
    # Bounded, and no digits but these: Python refuses numbers of thousands.
    found = re.match(r"-?[0-9]{1,18}(?![0-9])", text or "")
    return int(found[0]) if found else None
