"""Judges what `scene` has gathered, one check after the other: none that fails hides what others find."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import warmd
from warmd.config import config_path
from warmd.control.errors import NoDaemonError
from warmd.crash.quarantine import limit_name, read_suspects
from warmd.disk.identity import fingerprint_of
from warmd.disk.place import store_folder
from warmd.doctor import daemon, engine, files, service
from warmd.doctor.finding import Finding
from warmd.doctor.scene import Scene, failed, look
from warmd.engines.model_folder import model_folder
from warmd.errors import WarmdError
from warmd.launchd.agent import variables_of
from warmd.launchd.flags import flag_value
from warmd.launchd.places import log_folder, plist_path
from warmd.launchd.ready import ask_ready
from warmd.launchd.service import Control
from warmd.launchd.variables import as_service
from warmd.logfile import log_file_path


def examine(launchctl: Control | None = None) -> list[Finding]:
    """Look at everything, in the order in which one thing depends on another.

    Args:
        launchctl: In place of the system's.

    Raises:
        UsageError: There is no home folder.
    """
    path = plist_path()
    plist, finding = service.look_at_plist(path)
    with as_service(variables_of(plist) if plist is not None else None):
        has_file = plist is not None or finding.state == "problem"
        scene, wrong, silent = look(plist, path, launchctl, has_file=has_file)
        return [*_findings(scene, path, finding, wrong, silent)]


def _findings(
    scene: Scene, path: Path, finding: Finding, wrong: Finding, silent: Finding | None
) -> Iterator[Finding]:
    plist = scene.plist
    is_here = scene.model is not None and scene.server is None
    model = model_folder(scene.model or "", scene.environment, scene.home) if is_here else None
    yield from _guarded("engine", lambda: engine.check_all(engine.probe_engine(), model))
    yield wrong
    yield scene.source
    yield from _guarded("model", lambda: _check_models(scene, model))
    yield from _check_files(scene, model)
    yield finding
    if plist is not None:
        yield from _guarded("LaunchAgent", lambda: service.check_plist(plist, path, scene.home, log_folder()))
    yield from [silent] if silent is not None else _guarded("service", lambda: _check_job(scene, path))
    yield from _check_running(scene, model)


def _guarded(name: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """What a check finds; also when it cannot do its work, for then the others are needed all the more."""
    try:
        yield from check()
    except WarmdError as error:
        fix = "put that right; `warmd install --model M` writes the service's flags anew"
        yield Finding(name, "problem", str(error), fix)
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not hide what the others find
        yield failed(name, error)


def _check_models(scene: Scene, folder: Path | None) -> Iterator[Finding]:
    if scene.status is not None:
        yield daemon.check_loaded(scene.status, folder)
    else:
        yield files.check_model(scene.model, folder)
    yield from files.check_adapter_folder(flag_value(scene.arguments, "--adapter-path"))
    if (draft := flag_value(scene.arguments, "--draft-model")) is not None:
        yield files.check_model(draft, model_folder(draft, scene.environment, scene.home), "draft model")


def _check_files(scene: Scene, model: Path | None) -> Iterator[Finding]:
    involved: list[Path] = []

    def check_prompts() -> Iterator[Finding]:
        finding, found = files.check_prompts(scene.prompts, scene.settings.prompts.max_bytes)
        involved.extend(found)
        yield finding

    log, store = log_file_path(scene.settings.log), _store(scene)
    logs = log.parent if log is not None else log_folder()
    yield from _guarded("prompts", check_prompts)
    yield from _guarded("state folder", lambda: [files.check_folder("state folder", scene.state)])
    yield from _guarded("log folder", lambda: [files.check_folder("log folder", logs)])
    yield from _guarded("warm state", lambda: [_check_store(scene, store)])
    read = [*involved, config_path(), scene.state, logs, store, *_read_folders(scene, model)]
    yield from _guarded("privacy", lambda: files.check_protected(read, scene.home))
    yield from _guarded("disk", lambda: files.check_disk((scene.state, store)))


def _read_folders(scene: Scene, model: Path | None) -> Iterator[Path]:
    """Where the service reads models and programs."""
    if model is not None:
        yield model
    if (adapter := flag_value(scene.arguments, "--adapter-path")) is not None:
        yield Path(adapter)
    draft = model_folder(flag_value(scene.arguments, "--draft-model") or "", scene.environment, scene.home)
    if draft is not None:
        yield draft
    if scene.plist is not None:
        yield Path(scene.plist["ProgramArguments"][0])
    # The package may be read from a checkout, wherever the interpreter is.
    yield Path(warmd.__file__).parent


def _check_running(scene: Scene, model: Path | None) -> Iterator[Finding]:
    state, status = scene.state, scene.status
    yield from _guarded("starts", lambda: service.check_starts(state, scene.start))
    if scene.server is not None:
        yield from _guarded("server", lambda: [daemon.check_server(scene.server)])
    else:
        yield from _guarded("port", lambda: [_check_port(scene)])
    yield from _guarded("daemon", lambda: [_check_daemon(scene)])
    if status is None:
        yield from _guarded("quarantine", lambda: _check_suspects(scene, model))
    else:
        yield from _guarded("version", lambda: daemon.check_version(status, warmd.__version__, scene.again))
        yield from _guarded("entries", lambda: daemon.check_entries(status))
    yield from _guarded("prefill rate", lambda: daemon.check_rates(state))


def _check_daemon(scene: Scene) -> Finding:
    return daemon.check_daemon(
        scene.status, scene.error, scene.start, is_hung=scene.is_hung, again=scene.again
    )


def _check_suspects(scene: Scene, model: Path | None) -> Iterator[Finding]:
    suspects = read_suspects(scene.state)
    if isinstance(scene.error, NoDaemonError):
        # Marks of what is being warmed are then those of an abrupt end.
        suspects = suspects.after_end(time.time())
    if not suspects.ended:
        return iter(())
    return daemon.check_suspects(suspects, _starting(scene, model))


def _starting(scene: Scene, folder: Path | None) -> daemon.Starting:
    """What the service would warm for; its model's files are looked at as it would."""
    limit = flag_value(scene.arguments, "--memory-limit") or scene.settings.memory.limit
    draft = flag_value(scene.arguments, "--draft-model")
    adapter = flag_value(scene.arguments, "--adapter-path")
    folders = {
        "model": folder,
        **({"adapter": Path(adapter)} if adapter is not None else {}),
        **({"draft_model": model_folder(draft, scene.environment, scene.home)} if draft is not None else {}),
    }
    return daemon.Starting(scene.model, fingerprint_of(folders), limit_name(limit))


def _store(scene: Scene) -> Path:
    disk = scene.status["disk"] if scene.status is not None else None
    return Path(disk["path"]) if disk is not None else store_folder(scene.settings.store)


def _check_store(scene: Scene, folder: Path) -> Finding:
    disk = scene.status["disk"] if scene.status is not None else None
    problem = disk["problem"] if disk is not None else None
    return files.check_store(folder, problem, is_enabled=scene.settings.store.enabled)


def _check_port(scene: Scene) -> Finding:
    address = scene.address
    readiness = ask_ready(address)
    return service.check_port(
        address,
        readiness,
        is_taken=readiness is None and address.is_taken(),
        is_installed=scene.plist is not None,
        daemon_pid=scene.status["pid"] if scene.status is not None else None,
        job_pid=scene.job_pid,
        is_hung=scene.is_hung,
        again=scene.again,
    )


def _check_job(scene: Scene, path: Path) -> Iterator[Finding]:
    log = log_file_path(scene.settings.log)
    if scene.job is not None and scene.plist is not None:
        yield from service.check_loaded(scene.job[1], scene.plist, path)
    yield service.check_job(scene.job, scene.has_file, log, log_folder(), scene.start)
