"""What is on the disk: the model, the prompts file, the folders, and what macOS keeps from a service."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote

from warmd.commands.check import check_file
from warmd.commands.check_report import Report
from warmd.disk.files import Files
from warmd.doctor.finding import Finding
from warmd.engines.model_folder import ModelError, check_adapter, check_model_folder
from warmd.files.atomic import is_there
from warmd.launchd.protected import protected_by
from warmd.memory.size import format_size
from warmd.text import counted

_ELSEWHERE = "take another folder, in the settings or in WARMD_STATE_DIR and the like, or ask its owner"
SCARCE_BYTES = 2 * 10**9
"""Free space below which something will soon fail: logs, state, the download of a model."""


# --- the model ------------------------------------------------------------------------------------


def check_model(model: str | None, folder: Path | None, name: str = "model") -> Finding:
    """The model that a service names is there."""
    if model is None:
        return Finding(name, "unknown", "no service is installed that would name one")
    try:
        check_model_folder(model)
    except ModelError as error:
        return Finding(name, "problem", str(error), "install again: `warmd install --model M`")
    if folder is None:
        what = f"{model} is not in the Hugging Face cache: the next start downloads it"
        return Finding(name, "warning", what, f"`hf download {quote(model)}`")
    return Finding(name, "ok", str(folder))


def check_adapter_folder(path: str | None) -> Iterator[Finding]:
    """The adapter that a service names, if it names one, is there."""
    if path is None:
        return
    try:
        check_adapter(path)
    except ModelError as error:
        fix = "install again: `warmd install --model M -- --adapter-path FOLDER`"
        yield Finding("adapter", "problem", str(error), fix)
    else:
        yield Finding("adapter", "ok", path)


# --- the prompts file -----------------------------------------------------------------------------


def check_prompts(path: Path, max_bytes: int) -> tuple[Finding, tuple[Path, ...]]:
    """The prompts file is as `warmd check` wants it.

    Returns:
        The finding, and every file that takes part.
    """
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        what = f"{path} does not exist; nothing is kept warm until it does"
        fix = 'write it (README, "The prompts file"), or let `warmd capture NAME --save` do it'
        return Finding("prompts", "warning", what, fix), (path,)
    except OSError as error:
        return _unreachable("prompts", path, error), (path,)
    report = check_file(path, max_bytes)
    return _judge(report), report.document.files if report.document is not None else (path,)


def _judge(report: Report) -> Finding:
    fix = f"`warmd check {quote(str(report.path))}` shows all of it"
    if report.document is None:
        first = report.errors[0]
        more = f", and {len(report.errors) - 1} more" if len(report.errors) > 1 else ""
        line = f":{first.line}" if first.line is not None else ""
        return Finding("prompts", "problem", f"{report.path}{line}: {first.message}{more}", fix)
    count = len(report.document.entries)
    what = f"{report.path}: {counted(count, 'entry', 'entries')}"
    if warnings := len(report.warnings):
        return Finding("prompts", "warning", f"{what}, {counted(warnings, 'warning')}", fix)
    return Finding("prompts", "ok", what)


# --- warm state -----------------------------------------------------------------------------------


def check_store(folder: Path, problem: str | None, *, is_enabled: bool) -> Finding:
    """How much warm state is on disk, where, and how it goes away.

    Args:
        folder: The folder.
        problem: Why a running daemon does not use it, or None.
        is_enabled: Warm state is kept on disk at all.
    """
    usable = check_folder("warm state", folder)
    if usable.state == "problem" and is_enabled:
        return usable
    try:
        sizes = [file.nbytes for file in Files(folder).listed()]
    except OSError as error:
        what, fix = f"{folder}: {error.strerror or error}", _look_at(folder)
        return Finding("warm state", "problem" if is_enabled else "warning", what, fix)
    what = f"{format_size(sum(sizes))} in {counted(len(sizes), 'file')} in {folder}"
    if sizes:
        what += "; `warmd store clear` or `warmd uninstall --purge` removes that"
    if not is_enabled:
        what += "; no more is written: [store] enabled is false"
    if problem is not None:
        return Finding("warm state", "warning", f"{what}; not used: {problem}", "see `warmd logs`")
    return Finding("warm state", "ok", what)


# --- folders --------------------------------------------------------------------------------------


def check_folder(name: str, folder: Path) -> Finding:
    """A folder of ours is ours, writable and closed to others, or can be made."""
    try:
        found = folder.stat()
    except FileNotFoundError:
        parent = _nearest_there(folder)
        if os.access(parent, os.W_OK | os.X_OK):
            return Finding(name, "ok", f"{folder} will be made")
        return Finding(
            name, "problem", f"{folder} cannot be made: {parent} is read-only", _open_up(parent, "u+w")
        )
    except OSError as error:
        return _unreachable(name, folder, error)
    if not stat.S_ISDIR(found.st_mode):
        return Finding(name, "problem", f"{folder} is no folder", "move it out of the way")
    if found.st_uid != os.geteuid():
        return Finding(name, "problem", f"{folder} belongs to another user", _ELSEWHERE)
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding(name, "problem", f"{folder} is read-only", _open_up(folder, "u+rwx"))
    if found.st_mode & 0o022:
        return Finding(name, "warning", f"{folder}: others may write there", _open_up(folder, "700"))
    return Finding(name, "ok", str(folder))


def _open_up(path: Path, mode: str) -> str:
    """The command that lets us in; only its owner may change a mode."""
    if path.stat().st_uid == os.geteuid():
        return f"chmod {mode} {quote(str(path))}"
    return f"it belongs to another user: {_ELSEWHERE}"


def _look_at(path: Path) -> str:
    return f"look at it: ls -ld {quote(str(path))}"


def _nearest_there(path: Path) -> Path:
    """The path, or the nearest folder above it that is there and can be looked at."""
    return next(parent for parent in (path, *path.parents) if is_there(parent))


def _unreachable(name: str, path: Path, error: OSError) -> Finding:
    """A path that cannot be looked at, with the folder above it that keeps us out."""
    closed = next((folder for folder in reversed(path.parents) if not os.access(folder, os.X_OK)), None)
    if not isinstance(error, PermissionError) or closed is None:
        return Finding(name, "problem", f"{path}: {error.strerror}", _look_at(path))
    what = f"{path} cannot be reached: {closed} may not be entered"
    return Finding(name, "problem", what, _open_up(closed, "u+x"))


def check_disk(folders: Sequence[Path]) -> Iterator[Finding]:
    """There is room on the disks that some folders are on; each disk is told once."""
    seen: set[int] = set()
    for folder in folders:
        there = _nearest_there(folder)
        device = there.stat().st_dev
        if device in seen:
            continue
        seen.add(device)
        free = shutil.disk_usage(there).free
        what = f"{format_size(free)} free at {folder}"
        if free < SCARCE_BYTES:
            yield Finding("disk", "warning", what, "make room: logs, warm state and models need it")
        else:
            yield Finding("disk", "ok", what)


def check_protected(paths: Sequence[Path], home: Path) -> Iterator[Finding]:
    """Nothing that the service reads is where macOS keeps services out (TCC)."""
    fix = (
        "move it, for example to ~/.config/warmd, or give the service's Python Full Disk Access "
        "(System Settings, Privacy & Security)"
    )
    found = [
        Finding("privacy", "warning", f"{path} is in {place}, which macOS keeps from services", fix)
        for path in dict.fromkeys(paths)
        if (place := protected_by(path, home)) is not None
    ]
    yield from found or [Finding("privacy", "ok", "nothing is in a folder that macOS protects")]
