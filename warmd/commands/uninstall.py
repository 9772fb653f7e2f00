"""`warmd uninstall`: takes the LaunchAgent away."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from typing import Any

from warmd.commands.plural import counted
from warmd.config import config_path, load_settings
from warmd.control.place import state_folder
from warmd.disk.files import Files
from warmd.disk.place import store_folder
from warmd.errors import UsageError
from warmd.launchd.install import CannotChangeError, refuse_root
from warmd.launchd.launchctl import NoLaunchctlError
from warmd.launchd.places import log_folder, plist_path
from warmd.launchd.purge import purge, purge_store
from warmd.launchd.service import Service
from warmd.memory.size import format_size
from warmd.parser import add_command

DESCRIPTION = """\
Stop the service and remove its LaunchAgent. Settings, prompts, models and logs stay; with --purge what warmd
keeps in its state folder, and warm state on disk, go too, also where there is no launchctl and so no service.
Exit code 0: it is gone, or was not there. 1: launchd or the file system refuses. 3: no launchctl (without
--purge), or --purge while a daemon runs there."""


def add_parser(subparsers: Any) -> None:
    """Add the command's parser."""
    parser = add_command(
        subparsers, "uninstall", run, summary="remove the Mac service", description=DESCRIPTION
    )
    parser.add_argument(
        "--purge",
        action="store_true",
        help="also remove warmd's files in the state folder, and warm state on disk",
    )


def run(args: argparse.Namespace) -> int:
    """Stop, remove, and tell what stays."""
    refuse_root(os.geteuid(), sys.platform)
    path = plist_path()
    was_loaded = _unload(is_purging=args.purge)
    try:
        path.unlink()
        was_there = True
    except FileNotFoundError:
        was_there = False
    except OSError as error:
        raise CannotChangeError(path, error) from None
    print(f"removed: {path}" if was_there or was_loaded else "the service is not installed")
    if args.purge:
        _purge()
    print(f"left: {config_path()}, {log_folder()}")
    if not args.purge:
        _tell_kept()
    return 0


def _unload(*, is_purging: bool) -> bool:
    """Take the service out of launchd; True when it was there.

    Raises:
        NoLaunchctlError: This is no Mac, and there is nothing else to do here.
    """
    try:
        return Service(os.getuid()).unload()
    except NoLaunchctlError:
        if not is_purging:
            raise
        # Files are there to be removed wherever a daemon has run.
        print("there is no launchctl here, and so no service to stop", file=sys.stderr)
        return False


def _tell_kept() -> None:
    """What --purge would have removed, as far as the settings can be read and say where it is."""
    with contextlib.suppress(UsageError, OSError):
        settings = load_settings()
        folder = store_folder(settings.store)
        sizes = [file.nbytes for file in Files(folder).listed()]
        print(f"left, --purge removes it: what warmd keeps in {state_folder(settings.state)}")
        size = f"{format_size(sum(sizes))} in {counted(len(sizes), 'file')}"
        print(f"left, --purge removes it: {size} of warm state in {folder}")


def _purge() -> None:
    settings = load_settings()
    folder, store = state_folder(settings.state), store_folder(settings.store)
    try:
        # On Linux the logs are in there.
        left = [name for name in purge(folder) if folder / name != log_folder()]
    except OSError as error:
        raise CannotChangeError(folder, error) from None
    try:
        files = purge_store(store)
    except OSError as error:
        raise CannotChangeError(store, error) from None
    rest = f", but for what is not warmd's: {', '.join(left)}" if left else ""
    print(f"removed: what was in {folder}{rest}")
    print(f"removed: {counted(files, 'file')} of warm state in {store}")
