"""Puts a new job in the place of the one that runs: either the new one is loaded, or the old one is again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from warmd.capture.files import write_atomically
from warmd.errors import WarmdError
from warmd.launchd.agent import LARGEST, Plist, serve_arguments
from warmd.launchd.errors import PortTakenError
from warmd.launchd.install import PLIST_MODE
from warmd.launchd.launchctl import JobState
from warmd.launchd.ready import Address, is_anothers
from warmd.launchd.service import Service
from warmd.prompts.files import UnreadableError, read_file


def check_port(address: Address, job: JobState | None, installed: Plist | None) -> None:
    """The port is free, or that of the service itself, which will make room.

    Args:
        address: Where the new server is to listen.
        job: The service that is loaded; None when there is none.
        installed: Its file, where that can be read.

    Raises:
        PortTakenError: Another program has it.
    """
    pid = job.pid if job is not None else None
    is_its_own = installed is None or Address.of(serve_arguments(installed)).port == address.port
    if is_anothers(address, pid) if is_its_own else address.is_taken():
        raise PortTakenError(address.url)


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
        tell: Shows a line to a person, when the old one is loaded again, or cannot be.

    Returns:
        The domain that took it.

    Raises:
        WarmdError: It is not loaded, and the old one is as far as that is possible.
    """
    before = service.find()
    old = _content(path) if before is not None else None
    try:
        service.unload()
        # Otherwise somebody else would answer for the new server.
        if address.is_taken():
            raise PortTakenError(address.url)
        return service.load(path, write)
    # Also when a person stops it with ctrl-C.
    except BaseException:
        if before is not None:
            _put_back(service, path, old, before[0], tell)
        raise


def _content(path: Path) -> bytes | None:
    try:
        return read_file(path, LARGEST)
    except UnreadableError:
        return None


def _put_back(
    service: Service, path: Path, old: bytes | None, domain: str, tell: Callable[[str], None]
) -> None:
    try:
        if service.find() is not None:
            return
        if old is None:
            tell("the service that ran before had no file any more, and cannot be loaded again")
            return
        if _content(path) != old:
            write_atomically(path, old, PLIST_MODE)
        service.load_again(domain, path)
        tell("nothing has changed: the service that was there before is loaded again")
    except (WarmdError, OSError) as error:
        tell(f"the service that was there before could not be loaded again: {error}")
