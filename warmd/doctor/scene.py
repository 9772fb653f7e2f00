"""Gathers what the doctor looks at, once, from the outside: nothing here changes anything."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warmd.config import config_path, expand_home, load_settings, settings_without, variables_given
from warmd.control.client import ask_at
from warmd.control.errors import ControlFailedError, NoDaemonError
from warmd.control.place import socket_path, state_folder
from warmd.doctor.commands import restart_command, start_command
from warmd.doctor.finding import Finding
from warmd.errors import UsageError, WarmdError
from warmd.files.atomic import is_there
from warmd.launchd.agent import Plist, serve_arguments
from warmd.launchd.flags import flag_value
from warmd.launchd.launchctl import JobState, Launchctl, LaunchctlError, NoLaunchctlError
from warmd.launchd.ready import Address
from warmd.launchd.service import GONE_LOOKS, Control, Service
from warmd.settings import Settings

STATUS_SECONDS = 10.0
NO_LAUNCHD = Finding("service", "unknown", "there is no launchctl here: no Mac")


@dataclass(frozen=True, slots=True)
class Scene:
    """Where to look.

    Attributes:
        settings: As the service has them, where one is installed.
        arguments: What the service gives to `warmd serve`.
        environment: The service's variables, or this process's.
        plist: The installed LaunchAgent; None where there is none, or none that can be read.
        has_file: Its file is there, whether or not it can be read.
        has_launchd: This is a Mac.
        home: The user's home folder.
        job: The domain that has the service, and how it is there; None where none has.
        state: The state folder.
        status: What the daemon there says; None where none answers.
        error: Why none does.
    """

    settings: Settings
    arguments: tuple[str, ...]
    environment: dict[str, str]
    plist: Plist | None
    has_file: bool
    has_launchd: bool
    home: Path
    job: tuple[str, JobState] | None
    state: Path
    status: Any = None
    error: WarmdError | None = None

    @property
    def source(self) -> Finding:
        """Whose model, prompts file and port are looked at."""
        if self.status is not None:
            whose = f"of the running daemon, pid {self.status['pid']}"
        elif self.plist is not None:
            whose = "of the installed service, as no daemon runs"
        elif self.has_file:
            whose = "of the settings, as no daemon runs and the service's file cannot be read"
        else:
            whose = "of the settings, as no daemon runs and no service is installed"
        return Finding("looked at", "ok", f"model, prompts file and port {whose}")

    @property
    def model(self) -> str | None:
        """Folder or name of the model."""
        if self.status is not None:
            return self.status["model"] or None
        return flag_value(self.arguments, "--model")

    @property
    def address(self) -> Address:
        """Where the server listens."""
        url = self.status.get("url") if self.status is not None else None
        return Address.of_url(url) if url else Address.of(self.arguments)

    @property
    def job_pid(self) -> int | None:
        """Of the service's process."""
        return self.job[1].pid if self.job is not None else None

    @property
    def start(self) -> str:
        """The command that starts a daemon where none runs."""
        return start_command(
            is_readable=self.plist is not None,
            has_file=self.has_file and self.has_launchd,
            is_loaded=self.job is not None,
        )

    @property
    def again(self) -> str:
        """What ends the daemon that is there, and starts another in its place."""
        daemon = self.status["pid"] if self.status is not None else None
        return restart_command(daemon, self.job_pid)

    @property
    def is_hung(self) -> bool:
        """There is a daemon, and it does not answer."""
        return isinstance(self.error, ControlFailedError)

    @property
    def server(self) -> Any:
        """The server elsewhere that a running sidecar warms; None where there is none."""
        return self.status.get("server") if self.status is not None else None

    @property
    def prompts(self) -> Path:
        """The warm-prompts file."""
        if self.status is not None:
            return Path(self.status["document"]["path"])
        given = flag_value(self.arguments, "--prompts")
        return expand_home(given or self.settings.prompts.path).absolute()


def look(
    plist: Plist | None, path: Path, launchctl: Control | None, *, has_file: bool
) -> tuple[Scene, Finding, Finding | None]:
    """Gather it, as the service means it where one is installed: the caller sees to that.

    Args:
        plist: The installed LaunchAgent; None where there is none, or none that can be read.
        path: Its file.
        has_file: It is there, whether or not it can be read.
        launchctl: In place of the system's.

    Returns:
        What there is, what is to be said of the settings, and why launchd cannot be asked.
    """
    settings, wrong = _look_at_settings(path if plist is not None else None)
    arguments = serve_arguments(plist) if plist is not None else ()
    state = state_folder(settings.state)
    status, error = _ask_status(state)
    job, silent = _find_job(launchctl or Launchctl())
    scene = Scene(
        settings=settings,
        arguments=arguments,
        environment=dict(os.environ),
        plist=plist,
        has_file=has_file,
        has_launchd=silent is not NO_LAUNCHD,
        home=expand_home("~"),
        job=job,
        state=state,
        status=status,
        error=error,
    )
    return scene, wrong, silent


def failed(name: str, error: Exception) -> Finding:
    """A check could not do its work: nobody may take that for a good sign."""
    what = f"the check itself failed ({type(error).__name__})"
    return Finding(name, "problem", what, "report this as a fault of warmd")


def _look_at_settings(plist: Path | None) -> tuple[Settings, Finding]:
    try:
        settings = load_settings()
    except UsageError as error:
        fix = "put it right; until then the service cannot start"
        if plist is not None and "WARMD_" in str(error):
            fix += f". The variables are in {plist}: `warmd install` replaces them by those of its shell"
        # Everything that is wrong has a line there.
        what = "; ".join(str(error).splitlines())
        return settings_without(os.environ), Finding("settings", "problem", what, fix)
    return settings, Finding("settings", "ok", sources(config_path(), variables_given(os.environ)))


def sources(path: Path, variables: Sequence[str]) -> str:
    """Where settings come from: the file, and the variables that set something."""
    names = ", ".join(variables)
    if is_there(path):
        return f"{path}, and above it {names}" if variables else str(path)
    return f"{path} does not exist: {f'defaults, but for {names}' if variables else 'all defaults'}"


def _find_job(launchctl: Control) -> tuple[tuple[str, JobState] | None, Finding | None]:
    try:
        return Service(os.getuid(), launchctl).find(GONE_LOOKS), None
    except NoLaunchctlError:
        return None, NO_LAUNCHD
    except LaunchctlError as error:
        return None, Finding("service", "unknown", str(error), "try again; if that goes on, log out and in")
    except Exception as error:  # noqa: BLE001 - it must not hide what the others find
        return None, failed("service", error)


def _ask_status(state: Path) -> tuple[Any, WarmdError | None]:
    try:
        return ask_at(socket_path(state), "status", {}, timeout=STATUS_SECONDS), None
    except NoDaemonError as error:
        return None, error
    except WarmdError as error:
        return None, ControlFailedError(f"the daemon does not answer: {error}")
