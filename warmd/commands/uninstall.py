"""`warmd uninstall`: takes the LaunchAgent away."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from warmd.commands.say import say
from warmd.config import config_path, load_settings
from warmd.control.place import state_folder
from warmd.disk.files import Files
from warmd.disk.place import store_folder
from warmd.errors import UsageError, WarmdError
from warmd.launchd.agent import UnreadablePlistError, variables_of
from warmd.launchd.install import CannotChangeError, read_installed, refuse_root
from warmd.launchd.launchctl import NoLaunchctlError
from warmd.launchd.places import log_folder, plist_path
from warmd.launchd.purge import check_folder, purge
from warmd.launchd.service import Service
from warmd.launchd.variables import as_service, check_from_root
from warmd.memory.size import format_size
from warmd.text import counted

DESCRIPTION = """\
Stop the service and remove its LaunchAgent. Settings, prompts, models and logs stay; with --purge what warmd
keeps in its state folder, and warm state on disk, go too, also where there is no launchctl and so no service.
Where those are the service's own variables say, and this shell's where it is not installed. A folder stays
unless it is empty, and called warmd or in one that is. If something cannot be removed, the LaunchAgent's file
stays too, to try again.
Exit code 0: it is gone, or was not there. 1: launchd or the file system refuses. 2: wrong settings, or
folders not to be purged. 3: no launchctl (without --purge), or --purge while a daemon runs there."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what it takes."""
    parser.add_argument(
        "--purge",
        action="store_true",
        help="also remove warmd's files in the state folder, and warm state on disk",
    )


def run(args: argparse.Namespace) -> int:
    """Stop, remove, and tell what stays."""
    refuse_root(os.geteuid(), sys.platform)
    path = plist_path()
    variables = _variables(path, is_purging=args.purge)
    with as_service(variables):
        places = _places() if args.purge else None
    if places is not None:
        # Before the service is stopped.
        check_folder(places.state)
        check_folder(places.store)
    was_loaded = _unload(is_purging=args.purge)
    if places is not None:
        # First: once the plist is gone nobody knows any more where the service kept things.
        try:
            _purge(places)
        except WarmdError:
            if path.exists():
                print(f"note: the service is stopped; {path} stays, to try this again", file=sys.stderr)
            raise
    try:
        path.unlink()
        say(f"removed: {path}")
    except FileNotFoundError:
        say("removed: the service, whose file was gone" if was_loaded else "the service is not installed")
    except OSError as error:
        if was_loaded:
            print("note: the service is stopped, until the next login", file=sys.stderr)
        raise CannotChangeError(path, error) from None
    with as_service(variables):
        if there := [str(kept) for kept in (config_path(), log_folder()) if os.path.lexists(kept)]:
            say(f"left: {', '.join(there)}")
        if not args.purge:
            _tell_kept()
    return 0


def _variables(path: Path, *, is_purging: bool) -> dict[str, str] | None:
    """Those of the service; None where there is none that tells, and this shell's count.

    Raises:
        UnreadablePlistError: They are to tell what is purged, and cannot be read.
        UsageError: They name folders that depend on where one is.
    """
    try:
        installed = read_installed(path)
    except UnreadablePlistError:
        # It may have named other folders than this shell does: those that are meant cannot be known.
        if is_purging:
            raise
        return None
    if installed is None:
        return None
    variables = variables_of(installed)
    if is_purging:
        check_from_root(variables)
    return variables


@dataclass(frozen=True, slots=True)
class Places:
    """Where the service kept things: its state, its warm state on disk, its logs."""

    state: Path
    store: Path
    logs: Path


def _places() -> Places:
    """As the settings say.

    Raises:
        UsageError: They are wrong.
    """
    settings = load_settings()
    return Places(state_folder(settings.state), store_folder(settings.store), log_folder())


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
        places = _places()
        sizes = [file.nbytes for file in Files(places.store).listed()]
        if _kept(places):
            say(f"left, --purge removes it: what warmd keeps in {places.state}")
        if sizes:
            size = f"{format_size(sum(sizes))} in {counted(len(sizes), 'file')}"
            say(f"left, --purge removes it: {size} of warm state in {places.store}")


def _kept(places: Places) -> list[str]:
    """What is in the state folder besides the logs, which are in there on Linux."""
    return [path.name for path in places.state.glob("*") if path != places.logs]


def _purge(places: Places) -> None:
    try:
        done = purge(places.state, places.store)
    except OSError as error:
        raise CannotChangeError(places.state, error) from None
    left = [name for name in done.left if places.state / name != places.logs]
    if done.removed:
        say(f"removed: what was in {places.state}")
    if left:
        say(f"left: in {places.state} what may not be warmd's: {', '.join(left)}")
    for folder in (places.state, places.store):
        if os.path.lexists(folder) and not folder.is_dir():
            say(f"left: {folder}, which is no folder and so not warmd's")
    if done.files:
        say(f"removed: {counted(done.files, 'file')} of warm state in {places.store}")
