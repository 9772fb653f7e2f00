"""Gathers what the doctor looks at, once, from the outside: nothing here changes anything."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import warmd
from warmd.config import Settings, config_path, expand_home, load_settings
from warmd.control.client import ask_at
from warmd.control.errors import ControlFailedError, NoDaemonError
from warmd.control.place import socket_path, state_folder
from warmd.crash.quarantine import read_suspects
from warmd.disk.place import store_folder
from warmd.doctor import daemon, engine, files, service
from warmd.doctor.finding import Finding
from warmd.engines.model_folder import model_folder
from warmd.errors import UsageError, WarmdError
from warmd.launchd.agent import Plist, flag_value, serve_arguments, variables_of
from warmd.launchd.launchctl import JobState, Launchctl, LaunchctlError, NoLaunchctlError
from warmd.launchd.places import log_folder, plist_path
from warmd.launchd.ready import Address, ask_ready
from warmd.launchd.service import Control, Service
from warmd.logfile import log_file_path

STATUS_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Scene:
    """Where to look.

    Attributes:
        settings: As the service has them, where one is installed.
        arguments: What the service gives to `warmd serve`.
        environment: The service's variables, or this process's.
        plist: The installed LaunchAgent; None where there is none.
        home: The user's home folder.
        launchctl: The boundary to launchd.
        state: The state folder.
        status: What the daemon there says; None where none answers.
        error: Why none does.
    """

    settings: Settings
    arguments: tuple[str, ...]
    environment: dict[str, str]
    plist: Plist | None
    home: Path
    launchctl: Control
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


def examine(launchctl: Control | None = None) -> Iterator[Finding]:
    """Look at everything, in the order in which one thing depends on another.

    Args:
        launchctl: In place of the system's.

    Raises:
        UsageError: There is no home folder.
    """
    home, path = expand_home("~"), plist_path()
    plist, finding = service.look_at_plist(path)
    environment = dict(os.environ) if plist is None else variables_of(plist)
    settings, wrong = _settings(environment)
    arguments = serve_arguments(plist) if plist is not None else ()
    state = state_folder(settings.state)
    status, error = _ask_status(state)
    scene = Scene(
        settings, arguments, environment, plist, home, launchctl or Launchctl(), state, status, error
    )
    is_here = scene.model is not None and scene.server is None
    model = model_folder(scene.model or "", environment, home) if is_here else None
    yield from _guarded("engine", lambda: engine.check_all(engine.probe_engine(), model))
    yield wrong
    yield scene.source
    yield from _guarded("model", lambda: [_check_model(scene, model)])
    yield from _guarded("files", lambda: _check_files(scene, model))
    yield finding
    if plist is not None:
        yield from _guarded("LaunchAgent", lambda: service.check_plist(plist, path, home, log_folder()))
    yield from _guarded("service", lambda: [_check_job(scene)])
    yield from _guarded("daemon", lambda: _check_running(scene))


def _guarded(name: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """What a check finds; also when it cannot do its work, for then the others are needed all the more."""
    try:
        return list(check())
    except WarmdError as error:
        return [Finding(name, "problem", str(error))]
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not hide what the others find
        what = f"the check itself failed ({type(error).__name__})"
        return [Finding(name, "unknown", what, "report this as a fault of warmd")]


def _settings(environment: dict[str, str]) -> tuple[Settings, Finding]:
    try:
        settings = load_settings(environment)
    except UsageError as error:
        fix = "put it right; until then the service cannot start"
        # Everything that is wrong has a line there.
        what = "; ".join(str(error).splitlines())
        return Settings(), Finding("settings", "problem", what, fix)
    path = config_path(environment)
    what = str(path) if path.exists() else f"{path} does not exist: all defaults"
    return settings, Finding("settings", "ok", what)


def _check_model(scene: Scene, folder: Path | None) -> Finding:
    if scene.status is not None:
        return daemon.check_loaded(scene.status, folder)
    return files.check_model(scene.model, folder)


def _check_files(scene: Scene, model: Path | None) -> Iterator[Finding]:
    finding, involved = files.check_prompts(scene.prompts, scene.settings.prompts.max_bytes)
    yield finding
    state, log = scene.state, log_file_path(scene.settings.log)
    logs = log.parent if log is not None else log_folder()
    yield files.check_folder("state folder", state)
    yield files.check_folder("log folder", logs)
    yield _check_store(scene)
    read = [*involved, config_path(scene.environment), state, logs, *([model] if model is not None else [])]
    if scene.plist is not None:
        read.append(Path(scene.plist["ProgramArguments"][0]))
    # The package may be read from a checkout, wherever the interpreter is.
    read.append(Path(warmd.__file__).parent)
    yield from files.check_protected(read, scene.home)
    yield files.check_disk(state)


def _check_running(scene: Scene) -> Iterator[Finding]:
    state, status = scene.state, scene.status
    if (starts := service.check_starts(state)) is not None:
        yield starts
    yield daemon.check_server(scene.server) if scene.server is not None else _check_port(scene)
    yield daemon.check_daemon(status, str(scene.error))
    if status is None:
        suspects = read_suspects(state)
        if isinstance(scene.error, NoDaemonError):
            # Marks of what is being warmed are then those of an abrupt end.
            suspects = suspects.after_end(time.time())
        yield from daemon.check_suspects(suspects, scene.model)
    else:
        if (version := daemon.check_version(status, warmd.__version__)) is not None:
            yield version
        yield from daemon.check_entries(status)
    yield from daemon.check_rates(state)


def _check_store(scene: Scene) -> Finding:
    disk = scene.status["disk"] if scene.status is not None else None
    folder = Path(disk["path"]) if disk is not None else store_folder(scene.settings.store)
    problem = disk["problem"] if disk is not None else None
    return files.check_store(folder, problem, is_enabled=scene.settings.store.enabled)


def _check_port(scene: Scene) -> Finding:
    address = scene.address
    readiness = ask_ready(address)
    is_taken = readiness is None and address.is_taken()
    daemon_pid = scene.status["pid"] if scene.status is not None else None
    return service.check_port(
        address,
        readiness,
        is_taken=is_taken,
        is_installed=scene.plist is not None,
        daemon_pid=daemon_pid,
    )


def _check_job(scene: Scene) -> Finding:
    found: tuple[str, JobState] | None
    try:
        found = Service(os.getuid(), scene.launchctl).find()
    except NoLaunchctlError:
        return Finding("service", "unknown", "there is no launchctl here: no Mac")
    except LaunchctlError as error:
        return Finding("service", "unknown", str(error), "try again; if that goes on, log out and in")
    return service.check_job(found, scene.plist is not None, log_file_path(scene.settings.log), log_folder())


def _ask_status(state: Path) -> tuple[Any, WarmdError | None]:
    try:
        return ask_at(socket_path(state), "status", {}, timeout=STATUS_SECONDS), None
    except NoDaemonError as error:
        return None, error
    except WarmdError as error:
        return None, ControlFailedError(f"the daemon does not answer: {error}")
