"""Puts a new job in the place of the one that runs: either the new one is loaded, or the old one is again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from warmd.errors import WarmdError
from warmd.files.atomic import write_atomically
from warmd.launchd.agent import LARGEST, Plist, serve_arguments, variables_of
from warmd.launchd.errors import PortTakenError
from warmd.launchd.hold import holding_signals
from warmd.launchd.install import PLIST_MODE
from warmd.launchd.launchctl import JobState, LaunchctlError
from warmd.launchd.ready import Address, ask_ready, is_anothers
from warmd.launchd.service import GONE_LOOKS, Service
from warmd.launchd.variables import is_carried
from warmd.prompts.files import UnreadableError, read_file

NOT_AGAIN = "the service that was there before could not be loaded again"
NO_SERVICE = "no service runs now, until `warmd install --model M` succeeds"


def check_port(address: Address, job: JobState | None, installed: Plist | None) -> None:
    """The port is free, or that of the service itself, which will make room.

    Args:
        address: Where the new server is to listen.
        job: The service that is loaded; None when there is none.
        installed: Its file, where that can be read.

    Raises:
        PortTakenError: Another process has it.
    """
    if _may_be_its_own(address, job, installed):
        is_taken = is_anothers(address, None if job is None else job.pid)
    else:
        is_taken = address.is_taken()
    if is_taken:
        raise _port_taken(address)


def _port_taken(address: Address) -> PortTakenError:
    readiness = ask_ready(address)
    if readiness is None:
        return PortTakenError(address.url)
    return PortTakenError(address.url, is_warmd=True, pid=readiness.pid)


def _may_be_its_own(address: Address, job: JobState | None, installed: Plist | None) -> bool:
    """True when the service listens there, as far as it can be told."""
    arguments = loaded_arguments(job, installed)
    if arguments is not None:
        return Address.of(arguments).port == address.port
    readiness = ask_ready(address)
    return job is not None and readiness is not None and readiness.pid == job.pid is not None


def loaded_arguments(job: JobState | None, installed: Plist | None) -> tuple[str, ...] | None:
    """What the loaded service gives to `warmd serve`, as launchd or else its file tells; None: neither."""
    if job is not None and job.arguments:
        return serve_arguments({"ProgramArguments": list(job.arguments)})
    return None if installed is None else serve_arguments(installed)


def not_loaded(job: JobState, installed: Plist) -> tuple[str, ...]:
    """What a service's file has by now that is not loaded, for a person, as far as launchd tells what is.

    launchd gives a job variables of its own, too: one that only the job has counts only as warmd's.
    """
    found = []
    if job.arguments and [*job.arguments] != installed["ProgramArguments"]:
        found.append("command line")
    wanted = variables_of(installed)
    # Where it names none of ours, it may tell only those of its own.
    if job.environment is not None and not wanted.keys().isdisjoint(job.environment):
        names = {*wanted, *filter(is_carried, job.environment)}
        found += sorted(name for name in names if wanted.get(name) != job.environment.get(name))
    found += [key for key, value in job.settings.items() if key in installed and str(installed[key]) != value]
    return tuple(found)


def replace_job(
    service: Service,
    path: Path,
    write: Callable[[bool], None],
    address: Address,
    tell: Callable[[str], None],
) -> str:
    """Take out the job that is loaded, if one is, and load the new one.

    Args:
        service: The job.
        path: The plist.
        write: Writes it; told whether it is for a session in the background.
        address: Where the new server is to listen.
        tell: Shows a line to a person, when what was there before is there again, or cannot be.

    Returns:
        The domain that took it.

    Raises:
        WarmdError: It is not loaded, and the old one is as far as that is possible.
        KeyboardInterrupt: So it is, too, after a signal that came before the old one was out.
    """
    found = service.find(GONE_LOOKS)
    before = _Before(path, _content(path), None if found is None else found[0])
    is_out = before.domain is None
    with holding_signals() as held:
        try:
            if not is_out:
                service.unload()
                is_out = True
            held.check()
            # Otherwise somebody else would answer for the new server.
            if address.is_taken():
                raise _port_taken(address)
            return service.load(path, write)
        except BaseException:
            _put_back(service, before, tell, is_out=is_out)
            raise


@dataclass(frozen=True, slots=True)
class _Before:
    """The file, None where there was none to read, and the domain of the job, None where none was."""

    path: Path
    content: bytes | None
    domain: str | None


def _content(path: Path) -> bytes | None:
    try:
        return read_file(path, LARGEST)
    except UnreadableError:
        return None


def _put_back(service: Service, before: _Before, tell: Callable[[str], None], *, is_out: bool) -> None:
    """Put the file and the job back, and tell what has come of it."""
    try:
        # A job that was told to go is still listed for a while, and nobody loads it again once it is gone.
        if not is_out and not service.wait_until_gone():
            tell(
                "launchd still has the service that was there before, and may yet drop it: see `warmd doctor`"
            )
            return
        if is_out and _is_loaded(service):
            tell("launchd has a service all the same: see `warmd doctor`")
            return
        if before.content is not None and before.content != _content(before.path):
            write_atomically(before.path, before.content, PLIST_MODE)
        if before.domain is None:
            return
        if before.content is None:
            tell(f"the service that ran before had no file that could be loaded again; {NO_SERVICE}")
            return
        service.load_again(before.domain, before.path)
        tell("nothing has changed: the service that was there before is loaded again")
    except (WarmdError, OSError) as error:
        what = "its file could not be put back" if before.domain is None else f"{NOT_AGAIN}; {NO_SERVICE}"
        tell(f"{what}: {error}")


def _is_loaded(service: Service) -> bool:
    """True when launchd says so; when it says nothing, loading shows."""
    try:
        return service.find() is not None
    except LaunchctlError:
        return False
