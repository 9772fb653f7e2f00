"""`warmd uninstall`: takes the LaunchAgent away."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from warmd.commands.plural import counted
from warmd.config import config_path, load_settings
from warmd.control.place import state_folder
from warmd.disk.place import store_folder
from warmd.launchd.install import CannotChangeError, refuse_root
from warmd.launchd.places import log_folder, plist_path
from warmd.launchd.purge import purge, purge_store
from warmd.launchd.service import Service

DESCRIPTION = """\
Stop the service and remove its LaunchAgent. Settings, prompts, models and logs stay; with --purge what warmd
keeps in its state folder, and warm state on disk, go too. Exit code 0: it is gone, or was not there. 1:
launchd or the file system refuses. 3: no launchctl, or --purge while a daemon runs there."""


def add_parser(subparsers: Any) -> None:
    """Add the command's parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "uninstall",
        help="remove the Mac service",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--purge",
        action="store_true",
        help="also remove warmd's files in the state folder, and warm state on disk",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Stop, remove, and tell what stays."""
    refuse_root(os.geteuid(), sys.platform)
    path = plist_path()
    was_loaded = Service(os.getuid()).unload()
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
    return 0


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
