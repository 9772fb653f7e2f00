"""A program that stands in for launchctl: it keeps jobs in a folder, and really starts and stops processes.

What it does is what the manual page and people's reports say of the real one: bootout returns before the
process has ended, a second bootstrap of a label is refused with 5, a domain that is not there with 125. It
starts each process in `/`, with the plist's environment and the job's name (and PYTHONPATH: a checkout tests
itself). It does not restart what fails: launchd waits 30 s.

Environment: `FAKE_LAUNCHD`, the folder; its `answers.json` may hold exit codes to give first, by subcommand
and target, as in `{"bootstrap gui/501": [5, 5]}`; `calls` has every call, a
line each. While there is a file `lingers`, no job that was booted out is gone.

The tests start it a thousand times: what only some subcommands need is imported there.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["FAKE_LAUNCHD"])
PLAIN = ("-S", "-E")
"""Python without anything installed, which takes a while to look at."""
MESSAGES = {
    5: "Input/output error",
    36: "Operation now in progress",
    125: "Domain does not support specified action",
}


def main(arguments: list[str]) -> int:
    """Run one subcommand."""
    if arguments[0] == "--supervise":
        return supervise(Path(arguments[1]))
    with (FOLDER / "calls").open("a") as calls:
        calls.write(" ".join(arguments) + "\n")
    target = arguments[2] if arguments[0] in ("kickstart", "kill") else arguments[1]
    if code := scripted(f"{arguments[0]} {target}"):
        return refuse(arguments[0], code)
    subcommands = {
        "print": show,
        "bootstrap": bootstrap,
        "bootout": bootout,
        "kill": kill,
        "kickstart": kickstart,
        "enable": enable,
    }
    return subcommands[arguments[0]](target, arguments)


def scripted(key: str) -> int:
    """The exit code that this call is to end with, if somebody has said so."""
    path = FOLDER / "answers.json"
    answers = json.loads(path.read_text()) if path.exists() else {}
    code = answers[key].pop(0) if answers.get(key) else 0
    path.write_text(json.dumps(answers))
    return int(code)


def refuse(subcommand: str, code: int) -> int:
    """Say no as launchctl does."""
    print(f"{subcommand.title()} failed: {code}: {MESSAGES.get(code, 'Unknown')}", file=sys.stderr)
    return code


def job_file(target: str) -> Path:
    """Where a job is kept."""
    return FOLDER / f"{target.replace('/', '+')}.json"


def read(path: Path) -> dict[str, Any]:
    """A job."""
    return dict(json.loads(path.read_text()))


def write(path: Path, job: dict[str, Any]) -> None:
    """Keep a job."""
    scratch = path.with_suffix(".new")
    # A plist may hold what JSON does not know; nothing here looks at it.
    scratch.write_text(json.dumps(job, default=str))
    scratch.replace(path)


def change(path: Path, **values: Any) -> None:
    """Change a job, of which several processes keep track. Who has been booted out stays so."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        job = read(path)
        if job["wanted"] == "out":
            values.pop("wanted", None)
        write(path, {**job, **values})


def show(target: str, arguments: list[str]) -> int:
    """`print DOMAIN` or `print DOMAIN/LABEL`."""
    if target.count("/") == 1:
        return 0 if not (FOLDER / "no-gui").exists() or target.startswith("user/") else 113
    path = job_file(target)
    if not path.exists():
        print(f'Could not find service "{target.rpartition("/")[2]}" in domain', file=sys.stderr)
        return 113
    job = read(path)
    state = "running" if job["pid"] else "not running"
    lines = [f"path = {job['path']}", "type = LaunchAgent", f"state = {state}", f"runs = {job['runs']}"]
    lines += [f"pid = {job['pid']}"] if job["pid"] else []
    code = job["exit"]
    if code is not None and code < 0:
        lines += [f"last terminating signal = {signal.strsignal(-code)}: {-code}"]
    lines += [f"last exit code = {'(never exited)' if code is None or code < 0 else code}"]
    lines += ["arguments = {", *(f"\t{argument}" for argument in job["arguments"]), "}"]
    plist = job["plist"]
    lines += ["default environment = {", "\tPATH => /usr/bin:/bin:/usr/sbin:/sbin", "}"]
    variables = {**plist["EnvironmentVariables"], "XPC_SERVICE_NAME": plist["Label"]}
    lines += ["environment = {", *(f"\t{name} => {value}" for name, value in variables.items()), "}"]
    lines += [f"stdout path = {plist['StandardOutPath']}", f"stderr path = {plist['StandardErrorPath']}"]
    lines += [f"minimum runtime = {plist['ThrottleInterval']}", f"exit timeout = {plist['ExitTimeOut']}"]
    lines += ["endpoints = {", '\t"x" = {', "\t\tpid = 1", "\t}", "}"]
    print(f"{target} = {{", *(f"\t{line}" for line in lines), "}", sep="\n")
    return 0


def bootstrap(target: str, arguments: list[str]) -> int:
    """`bootstrap DOMAIN PLIST`."""
    import plistlib
    import subprocess

    plist = plistlib.loads(Path(arguments[2]).read_bytes())
    session = plist.get("LimitLoadToSessionType", "Aqua")
    if target.startswith("gui/") and (FOLDER / "no-gui").exists():
        return refuse("bootstrap", 125)
    if (session == "Background") != target.startswith("user/"):
        return refuse("bootstrap", 5)
    path = job_file(f"{target}/{plist['Label']}")
    if path.exists():
        return refuse("bootstrap", 5)
    # As it is now: launchd does not look at the file again.
    loaded = {"path": arguments[2], "arguments": plist["ProgramArguments"], "plist": plist}
    write(path, {**loaded, "pid": 0, "runs": 0, "exit": None, "wanted": "run"})
    subprocess.Popen(
        [sys.executable, *PLAIN, __file__, "--supervise", str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return 0


def supervise(path: Path) -> int:
    """Run a job's process, again when it is kicked, until the job is booted out."""
    import subprocess

    plist = read(path)["plist"]
    while True:
        with Path(plist["StandardErrorPath"]).open("ab") as output:
            process = subprocess.Popen(
                plist["ProgramArguments"],
                env={
                    "PYTHONPATH": os.environ["PYTHONPATH"],
                    "XPC_SERVICE_NAME": plist["Label"],
                    **plist["EnvironmentVariables"],
                },
                cwd="/",
                umask=plist["Umask"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        change(path, pid=process.pid, runs=read(path)["runs"] + 1, wanted="run")
        code = None
        while code is None:
            time.sleep(0.02)
            code = process.poll()
            if code is None and (wanted := read(path)["wanted"]) != "run":
                code = end(process, plist["ExitTimeOut"] if wanted == "out" else 0)
        change(path, pid=0, exit=code)
        while read(path)["wanted"] == "run":
            time.sleep(0.02)
        if read(path)["wanted"] == "out":
            while (FOLDER / "lingers").exists():
                time.sleep(0.02)
            path.unlink()
            return 0


def end(process: Any, seconds: float) -> int:
    """Have a process end by itself within some seconds, or kill it."""
    deadline = time.monotonic() + seconds
    if seconds:
        process.send_signal(signal.SIGTERM)
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    return int(process.wait())


def bootout(target: str, arguments: list[str]) -> int:
    """`bootout DOMAIN/LABEL`: returns at once."""
    path = job_file(target)
    if not path.exists():
        return refuse("boot-out", 3)
    change(path, wanted="out")
    return refuse("boot-out", 36)


def kill(target: str, arguments: list[str]) -> int:
    """`kill SIGNAL DOMAIN/LABEL`."""
    pid = read(job_file(target))["pid"]
    # To kill(2) 0 means everybody in our own process group.
    if not pid:
        return refuse("kill", 3)
    os.kill(pid, getattr(signal, arguments[1]))
    return 0


def kickstart(target: str, arguments: list[str]) -> int:
    """`kickstart -k DOMAIN/LABEL`: returns when the new process is there."""
    path = job_file(target)
    if not path.exists():
        return refuse("kickstart", 113)
    runs = read(path)["runs"]
    change(path, wanted="kick")
    while read(path)["runs"] == runs:
        time.sleep(0.02)
    return 0


def enable(target: str, arguments: list[str]) -> int:
    """`enable DOMAIN/LABEL`."""
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
