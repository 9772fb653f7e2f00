"""`warmd restart`: stops the service's process and starts another."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from warmd.commands.install import WAIT_SECONDS, tell_readiness
from warmd.commands.options import seconds_or_zero
from warmd.launchd.agent import serve_arguments
from warmd.launchd.install import read_installed, refuse_root
from warmd.launchd.places import plist_path
from warmd.launchd.ready import Address
from warmd.launchd.service import Service
from warmd.parser import add_command

DESCRIPTION = """\
Restart the service (SIGTERM, then launchctl kickstart -k), and wait until the server takes requests. A change
of the LaunchAgent's file takes effect only with `warmd install`. Exit code 0: it runs. 1: it is not loaded,
launchd refuses, or the server has ended. 3: no launchctl."""


def add_parser(subparsers: Any) -> None:
    """Add the command's parser."""
    parser = add_command(
        subparsers, "restart", run, summary="restart the Mac service", description=DESCRIPTION
    )
    parser.add_argument(
        "--wait",
        metavar="S",
        type=seconds_or_zero,
        default=WAIT_SECONDS,
        help="seconds to wait for the server (default: 120; 0 does not wait)",
    )


def run(args: argparse.Namespace) -> int:
    """Restart and wait."""
    refuse_root(os.geteuid(), sys.platform)
    service = Service(os.getuid())
    domain, before = service.restart()
    print(f"restarted in {domain}")
    installed = read_installed(plist_path())
    address = Address.of(serve_arguments(installed) if installed else ())
    return tell_readiness(service, address, args.wait, before.runs)
