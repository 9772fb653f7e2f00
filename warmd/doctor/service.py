"""The service: its LaunchAgent, how it is in launchd, its port, its starts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from warmd.crash.starts import read_failed_starts
from warmd.doctor.commands import INSTALL, RESTART
from warmd.doctor.finding import Finding
from warmd.errors import WarmdError
from warmd.launchd.agent import (
    Agent,
    Plist,
    Session,
    UnreadablePlistError,
    build_plist,
    differing_keys,
    find_faults,
    read_plist,
    serve_arguments,
    variables_of,
)
from warmd.launchd.last_words import last_words
from warmd.launchd.launchctl import JobState
from warmd.launchd.places import stable_python, versioned_base
from warmd.launchd.ready import Address, Readiness
from warmd.launchd.replace import not_loaded
from warmd.launchd.variables import TEMPLATES_OWN
from warmd.text import counted

INSTALL_ANEW = "`warmd install --model M` writes it anew"
_MEANINGS = {1: "the engine or the daemon failed", 2: "a flag or a setting is wrong", 3: "it cannot start"}


# --- the file -------------------------------------------------------------------------------------


def look_at_plist(path: Path) -> tuple[Plist | None, Finding]:
    """The installed file, and what is to be said when it is not as it should be."""
    try:
        plist = read_plist(path)
    except FileNotFoundError:
        return None, Finding("LaunchAgent", "ok", "not installed")
    except UnreadablePlistError as error:
        return None, Finding("LaunchAgent", "problem", error.reason, INSTALL_ANEW)
    return plist, Finding("LaunchAgent", "ok", str(path))


def check_plist(plist: Plist, path: Path, home: Path, logs: Path) -> Iterator[Finding]:
    """The file follows our rules, names an interpreter that is there, and is what would be written today."""
    interpreter = Path(plist["ProgramArguments"][0])
    if not serve_arguments(plist):
        yield Finding("LaunchAgent", "problem", f"{path} does not run `warmd serve --model M`", INSTALL_ANEW)
        return
    if not interpreter.exists():
        what = f"the interpreter is gone: {interpreter}"
        yield Finding("interpreter", "problem", what, f"{INSTALL} writes the file anew, for this one")
    elif (base := versioned_base(interpreter)) is not None:
        what = f"{interpreter} leads to {base}, which goes with Homebrew's next upgrade"
        fix = f"make the virtual environment anew with a Python of opt/, then {INSTALL}"
        yield Finding("interpreter", "warning", what, fix)
    else:
        yield Finding("interpreter", "ok", str(interpreter))
    fix = f"{INSTALL} writes it anew; with --model M also the flags of what it runs"
    for fault in find_faults(plist, path):
        yield Finding("LaunchAgent", "problem", f"{path}: {fault}", fix)
    if keys := differing_keys(plist, _wanted(plist, home, logs)):
        what = f"{path} is not what would be written today: {', '.join(keys)}"
        yield Finding("LaunchAgent", "warning", what, f"{INSTALL} renews it and keeps what it runs")


def check_loaded(job: JobState, plist: Plist, path: Path) -> Iterator[Finding]:
    """What is loaded is what the file says."""
    if differing := not_loaded(job, plist):
        what = f"{path} is not what is loaded: {', '.join(differing)}"
        yield Finding("LaunchAgent", "warning", what, f"{INSTALL} writes it anew and loads it")


def _wanted(plist: Plist, home: Path, logs: Path) -> Plist:
    interpreter = Path(plist["ProgramArguments"][0])
    try:
        python = stable_python(sys.executable)
    except WarmdError:
        # It would not be installed, so what is there cannot be measured by it.
        python = interpreter
    if python.parent == interpreter.parent and interpreter.exists():
        # python and python3 of one environment are the same.
        python = interpreter
    session: Session = "Background" if plist.get("LimitLoadToSessionType") == "Background" else "Aqua"
    environment = {name: value for name, value in variables_of(plist).items() if name not in TEMPLATES_OWN}
    return build_plist(Agent(python, serve_arguments(plist), home, logs, environment, session))


# --- the job --------------------------------------------------------------------------------------


def check_job(
    found: tuple[str, JobState] | None, is_installed: bool, log: Path | None, logs: Path, start: str = INSTALL
) -> Finding:
    """launchd has the job, and its last process ended well.

    Args:
        found: The domain that has it, and how it is.
        is_installed: Its file is there.
        log: The log file; None where there is none.
        logs: The folder of launchd's own copy.
        start: The command that loads it where it is not.
    """
    if found is None:
        if not is_installed:
            # Only here: who has no launchd cannot install it.
            return Finding("service", "ok", "not installed; `warmd install --model M` makes a Mac service")
        return Finding("service", "problem", "not loaded into launchd", f"{start} loads it")
    domain, job = found
    if not is_installed:
        what = f"loaded into {domain}, but its file is gone"
        return Finding("service", "warning", what, "`warmd uninstall`, or `warmd install --model M`")
    if job.pid is not None:
        # That it has ended badly before is told by the log.
        again = f", started {job.runs} times; last {job.last_end}" if job.runs > 1 and job.last_end else ""
        return Finding("service", "ok", f"runs in {domain} with pid {job.pid}{again}")
    what = f"loaded into {domain}, but does not run; last {job.last_end or 'start: none'}"
    if job.last_exit in _MEANINGS:
        what += f" ({_MEANINGS[job.last_exit]})"
    words = "".join(f": {line}" for line in last_words(log, logs))
    fix = "see `warmd logs --level warning`, then `warmd restart`"
    return Finding("service", "problem", what + words, fix)


def check_port(
    address: Address,
    readiness: Readiness | None,
    *,
    is_taken: bool,
    is_installed: bool,
    daemon_pid: int | None = None,
    job_pid: int | None = None,
    is_hung: bool = False,
    again: str = RESTART,
) -> Finding:
    """The server answers, or nobody else has its port.

    Args:
        address: Where it should listen.
        readiness: What `/readyz` says; None when no warmd answers.
        is_taken: Somebody listens there.
        is_installed: The service is to have that port.
        daemon_pid: Of the daemon that the control socket leads to.
        job_pid: Of the service's process.
        is_hung: A daemon is there, but gives no answer.
        again: What puts another daemon in the place of the one that hangs.
    """
    ours = [pid for pid in (job_pid, daemon_pid) if pid is not None]
    another = f"another: {INSTALL[:-1]} --port N`" if is_installed else "another port (`--port N`)"
    fix = f"stop it (`lsof -i :{address.port}` names it), or take {another}"
    if readiness is not None:
        is_ours = readiness.pid in ours if readiness.pid is not None else bool(ours)
        # Where no daemon of ours answers commands, one that hangs may still answer here.
        if not is_ours and (ours or is_installed or not is_hung):
            what = f"{address.url} is another warmd's, pid {readiness.pid or 'unknown'}"
            return Finding("port", "problem" if is_installed else "warning", what, fix)
        if readiness.is_ready:
            return Finding("port", "ok", f"{address.url} takes requests")
        return Finding(
            "port", "warning", f"{address.url}: {readiness.reason}", "wait, or see `warmd logs -f`"
        )
    if is_taken and (ours or is_hung):
        who = f"the daemon, pid {ours[0]}," if ours else "the daemon"
        what = f"{address.url} gives no answer: {who} hangs, or another program has the port"
        hung = f"{again}; `lsof -i :{address.port}` names it"
        return Finding("port", "problem", what, hung)
    if is_taken:
        what = f"{address.url} is another program's"
        return Finding("port", "problem" if is_installed else "warning", what, fix)
    if daemon_pid is not None:
        return Finding("port", "unknown", f"nobody at {address.url}; the daemon may have another port")
    return Finding("port", "ok", f"{address.url} is free")


# --- its starts -----------------------------------------------------------------------------------


def check_starts(folder: Path, start: str) -> Iterator[Finding]:
    """Starts that failed, if any are on record.

    Args:
        folder: The state folder.
        start: The command that tries again.
    """
    found = read_failed_starts(folder)
    if not found.failed:
        return
    # Wrong settings have a line each.
    reason = "; ".join(found.failed[-1].reason.splitlines())
    what, fix = (
        f"{counted(len(found.failed), 'start')} failed of late: {reason}",
        f"put that right, then {start}",
    )
    if found.are_over:
        yield Finding("starts", "problem", f"{what}; launchd tries no more", fix)
    else:
        yield Finding("starts", "warning", what, fix)
