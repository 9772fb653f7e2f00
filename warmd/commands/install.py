"""`warmd install`: makes a LaunchAgent of `warmd serve`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from warmd.commands.options import port_number, seconds_or_zero
from warmd.config import Settings, config_path, expand_home, load_settings
from warmd.control.place import state_folder
from warmd.engines.model_folder import model_folder
from warmd.errors import UsageError
from warmd.launchd.agent import Agent, Plist, build_plist, flag_value, to_bytes
from warmd.launchd.errors import PortTakenError
from warmd.launchd.install import (
    Wanted,
    check,
    make_arguments,
    make_environment,
    make_folders,
    read_installed,
    refuse_root,
    write_plist,
    write_settings,
)
from warmd.launchd.last_words import last_words
from warmd.launchd.places import log_folder, plist_path, stable_python, versioned_base
from warmd.launchd.protected import protected_by
from warmd.launchd.ready import Address, wait_until_ready
from warmd.launchd.service import Service
from warmd.logfile import log_file_path
from warmd.parser import add_command

DESCRIPTION = """\
Install `warmd serve` as a LaunchAgent of this user: it starts at login, and again when it fails. Writes the
settings file if there is none, the LaunchAgent, and the folders for logs and state; loads it, and waits until
the server takes requests. Repeat it at any time: without --model it renews the file and keeps what it runs.
Exit code 0: it is installed and runs. 1: launchd refuses, or the server has ended. 2: usage. 3: no launchctl,
no such model, or the port is taken."""
WAIT_SECONDS = 120.0


def add_parser(subparsers: Any) -> None:
    """Add the command's parser."""
    parser = add_command(subparsers, "install", run, summary="run as a Mac service", description=DESCRIPTION)
    parser.add_argument(
        "--model", metavar="M", help="model folder or Hugging Face name (default: what is installed)"
    )
    parser.add_argument("--prompts", metavar="FILE", help="the warm-prompts file (default: from the config)")
    parser.add_argument("--port", metavar="N", type=port_number, help="the server's port (default: 8080)")
    parser.add_argument(
        "--wait",
        metavar="S",
        type=seconds_or_zero,
        default=WAIT_SECONDS,
        help="seconds to wait for the server (default: 120; 0 does not wait)",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print the LaunchAgent, notes on standard error, and do nothing",
    )
    parser.add_argument("flags", metavar="FLAG", nargs="*", help="after --: flags for mlx_lm.server")


def run(args: argparse.Namespace) -> int:
    """Install, and tell where everything is."""
    refuse_root(os.geteuid(), sys.platform)
    path = plist_path()
    wanted = Wanted(args.model, args.prompts, args.port, tuple(args.flags))
    # A new model makes a new file: then it does not matter what is wrong with the old one.
    installed = read_installed(path) if args.model is None else None
    agent = _agent(make_arguments(wanted, installed), installed)
    check(build_plist(agent), path)
    if args.dry_run:
        return _show(agent)
    service = Service(os.getuid())
    # Before anything is written: this says whether there is a launchctl at all.
    service.find()
    _prepare(agent)
    address = Address.of(agent.arguments)
    _load(service, agent, path, address)
    return tell_readiness(service, address, args.wait)


def _show(agent: Agent) -> int:
    """Print the file, and beside it what would be said of it."""
    sys.stdout.write(to_bytes(build_plist(agent)).decode("utf-8"))
    sys.stdout.flush()
    if shutil.which("launchctl") is None:
        print("note: there is no launchctl here: only a Mac can use this", file=sys.stderr)
    for line in _notes(agent, _prompts(agent, load_settings())):
        print(line, file=sys.stderr)
    return 0


def _agent(arguments: tuple[str, ...], installed: Plist | None) -> Agent:
    environment = make_environment(os.environ, installed)
    return Agent(stable_python(sys.executable), arguments, expand_home("~"), log_folder(), environment)


def _prepare(agent: Agent) -> None:
    """Write the settings, make the folders, and say what a person should know about them."""
    written = write_settings()
    settings = load_settings()
    make_folders(agent.logs, state_folder(settings.state))
    print(f"settings: {config_path()}{' (written; every line is a comment)' if written else ''}")
    for line in _notes(agent, _prompts(agent, settings)):
        print(line)


def _prompts(agent: Agent, settings: Settings) -> Path:
    return Path(flag_value(agent.arguments, "--prompts") or expand_home(settings.prompts.path))


def _notes(agent: Agent, prompts: Path) -> list[str]:
    notes = []
    if not prompts.exists():
        notes.append(f"note: {prompts} does not exist yet; it is picked up when it does")
    model = flag_value(agent.arguments, "--model") or ""
    notes += _download_notes(agent)
    for path in (prompts, agent.python, *([Path(model)] if model.startswith("/") else [])):
        if (place := protected_by(path, agent.home)) is not None:
            notes.append(
                f"warning: {path} is in {place}, which macOS keeps from services: see `warmd doctor`"
            )
    if (base := versioned_base(agent.python)) is not None:
        notes.append(f"warning: {agent.python} leads to {base}, which goes with Homebrew's next upgrade")
    if agent.environment:
        notes.append(f"note: the service has variables of its own: {', '.join(sorted(agent.environment))}")
    return notes


def _download_notes(agent: Agent) -> Iterator[str]:
    """Models that are not on this machine yet; whether the hub has them only the hub knows."""
    environment = {**os.environ, **agent.environment}
    for flag in ("--model", "--draft-model"):
        model = flag_value(agent.arguments, flag)
        if not model or model_folder(model, environment, agent.home) is not None:
            continue
        if environment.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
            yield f"warning: {model} is not in the Hugging Face cache, and HF_HUB_OFFLINE is set"
        else:
            yield f"note: {model} is not in the Hugging Face cache: the first start downloads it"


def _load(service: Service, agent: Agent, path: Path, address: Address) -> None:
    def write(in_background: bool) -> None:
        write_plist(path, build_plist(replace(agent, session="Background") if in_background else agent))

    service.unload()
    # Otherwise somebody else would answer for the new server.
    if address.is_taken():
        raise PortTakenError(address.url)
    domain = service.load(path, write)
    print(f"service: {path}, loaded into {domain}")
    if domain.startswith("user/"):
        print("note: nobody is logged in at the screen, so it runs in this user's background session")
    print(f"logs: {agent.logs} (`warmd logs -f`)")


def tell_readiness(service: Service, address: Address, seconds: float, runs_before: int = 0) -> int:
    """Wait for the server as long as is asked for, and say how it is; the exit code."""
    if not seconds:
        return 0
    print(f"waiting for {address.url}, {seconds:g} s at most (ctrl-C ends only the waiting)", flush=True)
    outcome = wait_until_ready(address, service.state, seconds, runs_before=runs_before)
    if outcome.state == "ready":
        print(f"ready: {address.url}")
        return 0
    if outcome.state == "loading":
        why = f" ({outcome.detail})" if outcome.detail else ""
        print(f"it runs, but takes no requests yet{why}; `warmd logs -f` shows how it goes on")
        return 0
    print(
        f"warmd: the server has ended ({outcome.detail})",
        *last_words(_log(), log_folder()),
        sep=": ",
        file=sys.stderr,
    )
    print("`warmd doctor` looks for the cause", file=sys.stderr)
    return 1


def _log() -> Path | None:
    """The log file; wrong settings may be why the server has ended, and then it had none."""
    try:
        return log_file_path(load_settings().log)
    except UsageError:
        return None
