"""The job in launchd: loaded, unloaded, restarted, looked at."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from warmd.errors import WarmdError
from warmd.launchd.hold import holding_signals
from warmd.launchd.launchctl import Answer, JobState, Launchctl, LaunchctlError, parse_print
from warmd.launchd.places import LABEL

NO_GUI_SESSION = 125
"""launchctl: "Domain does not support specified action": nobody is logged in at the screen."""
STILL_BUSY = (5, 17, 36, 37)
"""launchctl's errors (EIO, EEXIST, EINPROGRESS, EALREADY) while such a job is still on its way out."""

GONE_LOOKS = 3
"""So often in a row must launchd not know a job to be believed: one `launchctl print` may fail."""
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

    @property
    def _targets(self) -> tuple[str, ...]:
        return tuple(f"{domain}/{self.label}" for domain in self.domains)

    def find(self, looks: int = 1) -> tuple[str, JobState] | None:
        """The domain that has the job, and how it is there; None when it is not loaded.

        Args:
            looks: So often must launchd not know it: with 1, `launchctl print` may just have failed.
        """
        for look in range(looks):
            if look:
                self.sleep(PAUSE)
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
        """Have the job stopped and taken out, wherever it is, and wait until it is gone.

        Returns:
            True when it was loaded.

        Raises:
            WillNotUnloadError: It is still there after 40 s.
        """
        asked: dict[str, Answer] = {}

        def look() -> list[str]:
            listed = self._listed(asked)
            for target in listed:
                if target not in asked:
                    # What it says does not matter: it is 36 (in progress) as well as 0, before the end.
                    asked[target] = self.launchctl.run("bootout", target)
            return listed

        if left := self._look_until_gone(look):
            answer = asked[left[0]].reason
            raise WillNotUnloadError(left[0], f"still loaded after {UNLOAD_SECONDS:g} s ({answer})")
        return bool(asked)

    def wait_until_gone(self) -> bool:
        """Wait for a job that is on its way out; False when it is still there after 40 s."""
        return not self._look_until_gone(lambda: self._listed(self._targets))

    def _look_until_gone(self, look: Callable[[], list[str]]) -> list[str]:
        """Look until nothing has been there several times in a row; what is there when the time is up."""
        deadline = self.clock() + UNLOAD_SECONDS
        gone = 0
        while True:
            listed = look()
            gone = 0 if listed else gone + 1
            if gone == GONE_LOOKS or (listed and self.clock() >= deadline):
                return listed
            self.sleep(PAUSE)

    def _listed(self, unknown: Collection[str]) -> list[str]:
        """Where the job is loaded.

        Args:
            unknown: What is taken to be loaded when launchctl does not answer.

        Raises:
            LaunchctlError: It does not, and nothing is.
        """
        try:
            return [target for target in self._targets if self.launchctl.run("print", target).code == 0]
        except LaunchctlError:
            if not unknown:
                raise
            return list(unknown)

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
        if answer.code != NO_GUI_SESSION and self.launchctl.run("print", gui).code == 0:
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
        found = self.find(GONE_LOOKS)
        if found is None:
            raise NotLoadedError
        domain, before = found
        target = f"{domain}/{self.label}"
        # KeepAlive does not start again what has ended well.
        with holding_signals():
            if before.pid is not None:
                self._stop(target, before.pid)
            answer = self.launchctl.run("kickstart", "-k", target)
        if answer.code != 0:
            reason = f"{answer.reason} (error {answer.code}); the service may be stopped now"
            raise LaunchctlError(f"kickstart {target}", f"{reason}: `warmd restart` tries again")
        return domain, before

    def _stop(self, target: str, pid: int) -> None:
        """Let the process end as it wants to: `kickstart -k` may kill it in the midst of a warming."""
        # Whatever launchctl does not answer: the process may have been told to end.
        with suppress(LaunchctlError):
            self.launchctl.run("kill", "SIGTERM", target)
            deadline = self.clock() + STOP_SECONDS
            while self.clock() < deadline:
                answer = self.launchctl.run("print", target)
                if answer.code == 0 and parse_print(answer.output).pid != pid:
                    return
                self.sleep(PAUSE)
