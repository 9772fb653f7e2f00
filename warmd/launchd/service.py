"""The job in launchd: loaded, unloaded, restarted, looked at."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from warmd.errors import WarmdError
from warmd.launchd.launchctl import Answer, JobState, Launchctl, LaunchctlError, parse_print
from warmd.launchd.places import LABEL

NO_GUI_SESSION = 125
"""launchctl: "Domain does not support specified action": nobody is logged in at the screen."""
STILL_BUSY = (5, 17, 36, 37)
"""launchctl's errors (EIO, EEXIST, EINPROGRESS, EALREADY) while such a job is still on its way out."""

TRIES = 10
PAUSE = 0.5
"""Seconds between two tries, or two looks."""
STOP_SECONDS = 10.0
"""How long a process gets to end by itself before it is killed; warmd takes 5 s at most."""
UNLOAD_SECONDS = 40.0
"""How long a job may take to be gone: the plist's ExitTimeOut and then some."""


class Control(Protocol):
    """What `Launchctl` does; the tests have a scripted one."""

    def run(self, *arguments: str) -> Answer:
        """Run one subcommand to its end."""


class NotLoadedError(WarmdError):
    """There is nothing to restart."""

    def __init__(self) -> None:
        super().__init__("the service is not loaded; `warmd install --model M` installs and starts it")


class WillNotLoadError(LaunchctlError):
    """launchd does not take the job."""

    def __init__(self, domain: str, answer: Answer) -> None:
        super().__init__(
            f"bootstrap {domain}",
            f"{answer.reason} (error {answer.code}); `warmd doctor` looks for the cause",
        )


class WillNotUnloadError(LaunchctlError):
    """launchd does not let go of the job."""

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(f"bootout {target}", reason)


@dataclass(frozen=True, slots=True)
class Service:
    """The job of one user.

    Attributes:
        uid: The user.
        launchctl: The boundary.
        label: The job.
        sleep: Waits for so many seconds.
        clock: Seconds, of whatever beginning.
    """

    uid: int
    launchctl: Control = field(default_factory=Launchctl)
    label: str = LABEL
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    @property
    def domains(self) -> tuple[str, str]:
        """Where the job may be: the graphical login's domain, and the user's own."""
        return f"gui/{self.uid}", f"user/{self.uid}"

    def find(self) -> tuple[str, JobState] | None:
        """The domain that has the job, and how it is there; None when it is not loaded."""
        for domain in self.domains:
            answer = self.launchctl.run("print", f"{domain}/{self.label}")
            if answer.code == 0:
                return domain, parse_print(answer.output)
        return None

    def state(self) -> JobState | None:
        """How the job is, wherever it is; None when it is not loaded."""
        found = self.find()
        return None if found is None else found[1]

    def unload(self) -> bool:
        """Have the job stopped and taken out, and wait until it is gone.

        Returns:
            True when it was loaded.

        Raises:
            WillNotUnloadError: It is still there after 40 s.
        """
        was_loaded = False
        for domain in self.domains:
            target = f"{domain}/{self.label}"
            if self._is_loaded(target):
                was_loaded = True
                self._boot_out(target)
        return was_loaded

    def _boot_out(self, target: str) -> None:
        answer = self.launchctl.run("bootout", target)
        deadline = self.clock() + UNLOAD_SECONDS
        # What it says does not matter, for it says 36 (in progress) as well as 0 and returns before the end.
        while self._is_loaded(target):
            if self.clock() >= deadline:
                raise WillNotUnloadError(target, f"still loaded after {UNLOAD_SECONDS:g} s ({answer.reason})")
            self.sleep(PAUSE)

    def _is_loaded(self, target: str) -> bool:
        return self.launchctl.run("print", target).code == 0

    def load(self, path: Path, write: Callable[[bool], None]) -> str:
        """Load the job, into `gui/UID` or, where nobody is logged in at the screen, into `user/UID`.

        Args:
            path: The plist.
            write: Writes it; told whether it is for a session in the background.

        Returns:
            The domain that took it.

        Raises:
            WillNotLoadError: Neither takes it.
        """
        gui, user = self.domains
        write(False)
        answer = self._bootstrap(gui, path)
        if answer.code == 0:
            return gui
        # Over ssh launchd has been seen to say 5 where it means that there is no such domain.
        if answer.code != NO_GUI_SESSION and self._is_loaded(gui):
            raise WillNotLoadError(gui, answer)
        write(True)
        answer = self._bootstrap(user, path)
        if answer.code != 0:
            raise WillNotLoadError(user, answer)
        return user

    def load_again(self, domain: str, path: Path) -> None:
        """Load a job that was there before, as it was.

        Raises:
            WillNotLoadError: launchd does not take it.
        """
        answer = self._bootstrap(domain, path)
        if answer.code != 0:
            raise WillNotLoadError(domain, answer)

    def _bootstrap(self, domain: str, path: Path) -> Answer:
        # A job that somebody has disabled would be refused with 5, whatever its file says.
        self.launchctl.run("enable", f"{domain}/{self.label}")
        answer = self.launchctl.run("bootstrap", domain, str(path))
        for _ in range(TRIES - 1):
            if answer.code not in STILL_BUSY:
                break
            self.sleep(PAUSE)
            answer = self.launchctl.run("bootstrap", domain, str(path))
        return answer

    def restart(self) -> tuple[str, JobState]:
        """Stop the job's process and start it anew.

        Returns:
            The domain that has it, and how it was before.

        Raises:
            NotLoadedError: It is not loaded.
            LaunchctlError: launchd refuses.
        """
        found = self.find()
        if found is None:
            raise NotLoadedError
        domain, before = found
        target = f"{domain}/{self.label}"
        if before.pid is not None:
            self._stop(target, before.pid)
        answer = self.launchctl.run("kickstart", "-k", target)
        if answer.code != 0:
            raise LaunchctlError(f"kickstart {target}", f"{answer.reason} (error {answer.code})")
        return domain, before

    def _stop(self, target: str, pid: int) -> None:
        """Let the process end as it wants to: `kickstart -k` may kill it in the midst of a warming."""
        self.launchctl.run("kill", "SIGTERM", target)
        deadline = self.clock() + STOP_SECONDS
        while self.clock() < deadline:
            answer = self.launchctl.run("print", target)
            if answer.code != 0 or parse_print(answer.output).pid != pid:
                return
            self.sleep(PAUSE)
