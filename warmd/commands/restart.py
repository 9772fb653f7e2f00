"""`warmd restart`: stops the service's process and starts another."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from warmd.commands.install import tell_readiness
from warmd.commands.options import add_wait
from warmd.commands.say import say
from warmd.launchd.agent import Plist, UnreadablePlistError
from warmd.launchd.install import read_installed, refuse_root
from warmd.launchd.places import plist_path
from warmd.launchd.ready import Address
from warmd.launchd.replace import check_port, loaded_arguments, not_loaded
from warmd.launchd.service import GONE_LOOKS, NotLoadedError, Service

DESCRIPTION = """\
Restart the service (SIGTERM, then launchctl kickstart -k), and wait until the server takes requests. A change
of the LaunchAgent's file takes effect only with `warmd install`; what is not loaded of it is told. Ctrl-C
between the two waits for the second. Exit code 0: it runs. 1: it is not loaded, launchd refuses, or the
server has ended. 3: no launchctl, or another program has the port."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what it takes."""
    add_wait(parser)


def run(args: argparse.Namespace) -> int:
    """Restart and wait."""
    refuse_root(os.geteuid(), sys.platform)
    service = Service(os.getuid())
    installed = _installed(plist_path())
    found = service.find(GONE_LOOKS)
    if found is None:
        raise NotLoadedError
    _, job = found
    arguments = loaded_arguments(job, installed)
    if installed is not None and (differing := not_loaded(job, installed)):
        say(
            f"note: {plist_path()} is not what is loaded ({', '.join(differing)}): `warmd install` writes "
            "it anew, with this shell's variables, and loads it"
        )
    address = Address.of(arguments or ())
    # A server that runs is not stopped for one that could not start.
    check_port(address, job, installed)
    since = time.time()
    domain, before = service.restart()
    say(f"restarted in {domain}")
    return tell_readiness(service, address, args.wait, since, before.runs)


def _installed(path: Path) -> Plist | None:
    """The file; None also where it cannot be read, which is told: what is loaded starts without it."""
    try:
        return read_installed(path)
    except UnreadablePlistError as error:
        say(f"note: {error}")
        return None
