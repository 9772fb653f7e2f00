"""`warmd install`: makes a LaunchAgent of `warmd serve`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from warmd.commands.options import add_prompts, add_wait, port_number, with_memory_limit
from warmd.commands.say import say
from warmd.config import config_path, expand_home, load_settings
from warmd.control.place import state_folder
from warmd.engines.model_folder import model_folder
from warmd.errors import WarmdError
from warmd.launchd.agent import (
    Agent,
    Plist,
    UnreadablePlistError,
    build_plist,
    serve_arguments,
    to_bytes,
    variables_of,
)
from warmd.launchd.arguments import Wanted, make_arguments
from warmd.launchd.errors import PortTakenError
from warmd.launchd.flags import flag_value, flags_of
from warmd.launchd.install import (
    check,
    check_can_write,
    make_folders,
    read_installed,
    refuse_root,
    write_plist,
    write_settings,
)
from warmd.launchd.last_words import last_words
from warmd.launchd.launchctl import LaunchctlError, NoLaunchctlError
from warmd.launchd.places import log_folder, plist_path, stable_python, versioned_base
from warmd.launchd.protected import protected_by
from warmd.launchd.ready import Address, wait_until_ready
from warmd.launchd.replace import check_port, replace_job
from warmd.launchd.service import GONE_LOOKS, Service
from warmd.launchd.variables import TEMPLATES_OWN, as_service, ignored, make_environment
from warmd.logfile import log_file_path
from warmd.settings import Settings
from warmd.text import printable

DESCRIPTION = """\
Install `warmd serve` as a LaunchAgent of this user: it starts at login, and again when it fails. Writes the
settings file if there is none, the LaunchAgent, and the folders for logs and state; loads it, and waits until
the server takes requests. Repeat it at any time: without --model it renews the file and keeps what it runs.
The service gets the WARMD_ variables of this shell, and those that say where caches are. When it cannot be
loaded, the one that was there before is loaded again; so it is after ctrl-C, which waits until that is done.
Exit code 0: it is installed and runs. 1: launchd refuses, or the server has ended. 2: usage. 3: no launchctl,
no such model, or the port is taken."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what it takes."""
    parser.add_argument(
        "--model", metavar="M", help="model folder or Hugging Face name (default: what is installed)"
    )
    add_prompts(parser)
    parser.add_argument("--port", metavar="N", type=port_number, help="the server's port (default: 8080)")
    add_wait(parser)
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
    installed = _installed(path, is_renewed=args.model is None)
    agent = _agent(make_arguments(wanted, installed), installed if args.model is None else None)
    check(build_plist(agent), path)
    settings = _settings(agent)
    if args.dry_run:
        return _show(agent, installed, settings)
    service, address = Service(os.getuid()), Address.of(agent.arguments)
    # This says whether there is a launchctl at all.
    found = service.find(GONE_LOOKS)
    # All that can be known beforehand is looked at before anything is written or stopped.
    check_port(address, found[1] if found is not None else None, installed)
    check_can_write(path, to_bytes(build_plist(agent)))
    _prepare(agent, installed, settings)
    since = time.time()
    _load(service, agent, path, address)
    return tell_readiness(service, address, args.wait, since)


def _installed(path: Path, *, is_renewed: bool) -> Plist | None:
    try:
        return read_installed(path)
    except UnreadablePlistError:
        # A new model makes a new file: then it does not matter what is wrong with the old one.
        if is_renewed:
            raise
        return None


def _agent(arguments: tuple[str, ...], renewed: Plist | None) -> Agent:
    environment = make_environment(os.environ, variables_of(renewed) if renewed is not None else {})
    return Agent(stable_python(sys.executable), arguments, expand_home("~"), log_folder(), environment)


def _settings(agent: Agent) -> Settings:
    """The settings as the service will have them; what its command line says is looked at as it will be.

    Raises:
        UsageError: With these it could not start.
        SystemExit: Nor with that command line.
    """
    # Imported here: it imports the commands, and this is one.
    from warmd.cli import make_parser

    args, _ = make_parser(["serve"]).parse_known_args(["serve", *agent.arguments])
    environment = dict(agent.environment)
    if not os.path.lexists(config_path(environment)):
        # It is written, and says nothing.
        environment.pop("WARMD_CONFIG", None)
    return with_memory_limit(load_settings(environment), args.memory_limit)


def _show(agent: Agent, installed: Plist | None, settings: Settings) -> int:
    """Print the file, and beside it what would be said of it."""
    sys.stdout.write(to_bytes(build_plist(agent)).decode("utf-8"))
    sys.stdout.flush()
    if shutil.which("launchctl") is None:
        print("note: there is no launchctl here: only a Mac can use this", file=sys.stderr)
    for line in [*_notes(agent, installed, _prompts(agent, settings)), *_port_notes(agent, installed)]:
        print(printable(line), file=sys.stderr)
    return 0


def _port_notes(agent: Agent, installed: Plist | None) -> Iterator[str]:
    """That another process has the port, which an installation would refuse."""
    job = None
    with suppress(LaunchctlError, NoLaunchctlError):
        found = Service(os.getuid()).find(GONE_LOOKS)
        job = found[1] if found is not None else None
    try:
        check_port(Address.of(agent.arguments), job, installed)
    except PortTakenError as error:
        yield f"warning: {error}"


def _prepare(agent: Agent, installed: Plist | None, settings: Settings) -> None:
    """Write the settings, make the folders, and say what a person should know about them."""
    written = write_settings()
    with as_service(agent.environment):
        make_folders(agent.logs, state_folder(settings.state))
    say(f"settings: {config_path()}{' (written; every line is a comment)' if written else ''}")
    for line in _notes(agent, installed, _prompts(agent, settings)):
        say(line)


def _prompts(agent: Agent, settings: Settings) -> Path:
    return Path(flag_value(agent.arguments, "--prompts") or expand_home(settings.prompts.path))


def _notes(agent: Agent, installed: Plist | None, prompts: Path) -> list[str]:
    notes = []
    if not os.path.lexists(prompts):
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
    notes += [f"note: {name} is ignored, as it is no absolute path" for name in ignored(os.environ)]
    if agent.environment:
        notes.append(f"note: the service has variables of its own: {', '.join(sorted(agent.environment))}")
    notes += _dropped(agent, installed) if installed is not None else []
    return notes


def _dropped(agent: Agent, installed: Plist) -> Iterator[str]:
    """What the service had before and is not given any more."""
    before = flags_of(serve_arguments(installed))
    if flags := [flag for flag in before if flag not in flags_of(agent.arguments)]:
        yield f"note: not given any more: {', '.join(flags)} (a new --model begins anew)"
    names = sorted({*variables_of(installed)} - {*agent.environment, *TEMPLATES_OWN})
    if names:
        yield f"note: not given any more, as this shell does not have them: {', '.join(names)}"


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

    def tell(line: str) -> None:
        # Also when the terminal is gone: what is going on must go on.
        with suppress(OSError):
            print(f"warmd: {printable(line)}", file=sys.stderr)

    domain = replace_job(service, path, write, address, tell)
    say(f"service: {path}, loaded into {domain}")
    if domain.startswith("user/"):
        say("note: nobody is logged in at the screen, so it runs in this user's background session")
    say(f"logs: {agent.logs} (`warmd logs -f`)")


def tell_readiness(
    service: Service, address: Address, seconds: float, since: float, runs_before: int = 0
) -> int:
    """Wait for the server as long as is asked for, and say how it is; the exit code.

    Args:
        service: The job.
        address: Where it listens.
        seconds: How long to wait; 0 does not.
        since: When it was started, in seconds since the epoch: older words are about another start.
        runs_before: How often the job had been started before.
    """
    if not seconds:
        return 0
    say(f"waiting for {address.url}, {seconds:g} s at most (ctrl-C ends only the waiting)")
    outcome = wait_until_ready(address, service.state, seconds, runs_before=runs_before)
    if outcome.state == "ready":
        say(f"ready: {address.url}{f' ({outcome.detail})' if outcome.detail else ''}")
        return 0
    if outcome.state == "loading":
        why = f" ({outcome.detail})" if outcome.detail else ""
        say(f"it runs, but takes no requests yet{why}; `warmd logs -f` shows how it goes on")
        return 0
    if outcome.state == "taken":
        what = [f"what answers at {address.url} is not the service ({outcome.detail})"]
    else:
        what = [f"the server has ended ({outcome.detail})", *last_words(*_logs(), since)]
    print(f"warmd: {': '.join(what)}", file=sys.stderr)
    print("`warmd doctor` looks for the cause", file=sys.stderr)
    return 1


def _logs() -> tuple[Path | None, Path]:
    """The service's log file and the folder of launchd's own copy.

    Wrong settings may be why the server has ended, and then it had no log file.
    """
    with suppress(WarmdError):
        installed = read_installed(plist_path())
        variables = variables_of(installed) if installed is not None else None
        with as_service(variables):
            return log_file_path(load_settings().log), log_folder()
    return None, log_folder()
