"""What can go wrong between a command and the daemon."""

from __future__ import annotations

from pathlib import Path

from warmd.errors import CannotStartError, WarmdError


class ControlError(WarmdError):
    """A request that the daemon does not carry out; the message, one line, is the answer."""


class ControlFailedError(WarmdError):
    """The daemon answered that it does not, or not any more in time."""


class NoDaemonError(WarmdError):
    """Nobody listens."""

    exit_code = 4

    def __init__(self, path: Path, reason: str = "no socket") -> None:
        super().__init__(f"no daemon is running ({reason} at {path})")


class AnotherDaemonError(CannotStartError):
    """The state folder belongs to a daemon that runs."""

    def __init__(self, folder: Path, pid: int | None) -> None:
        self.pid = pid
        who = "another warmd" if pid is None else f"another warmd (pid {pid})"
        super().__init__(
            f"{who} uses the state folder {folder}; a second one needs its own (WARMD_STATE_DIR)"
        )


class NoSocketError(WarmdError):
    """There can be no control socket; the daemon goes on without one."""
