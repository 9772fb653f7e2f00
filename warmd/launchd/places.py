"""Where the LaunchAgent and its logs are, and which interpreter it runs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from warmd.config import expand_home, system_folder
from warmd.errors import UsageError

LABEL = "dev.warmd"
STDERR_NAME = "launchd.log"
"""launchd's own copy of what the process prints before and beside its log."""

_CELLAR = re.compile(r"(?P<prefix>.*)/Cellar/(?P<formula>[^/]+)/[^/]+(?P<rest>/.*)")
_THROWAWAY: Mapping[str, re.Pattern[str]] = {
    "uv's cache": re.compile(r"/uv/(archive-v\d+|environments-v\d+|builds-v\d+)/"),
    "pipx's cache": re.compile(r"/pipx/\.cache/|/(\.cache|Caches)/pipx/"),
    # https://developer.apple.com/documentation/foundation/nstemporarydirectory(): macOS empties these.
    "a temporary folder": re.compile(r"^(/private/(tmp|var/tmp|var/folders)|/var/folders)/"),
}


class ThrowawayPythonError(UsageError):
    """The interpreter is in a cache or a temporary folder, which may be emptied at any time."""

    def __init__(self, python: Path, where: str) -> None:
        super().__init__(
            f"{python} is in {where} and will be gone one day: "
            "install warmd to stay (`uv tool install warmd`, `pipx install warmd`)"
        )


def plist_path(label: str = LABEL) -> Path:
    """The LaunchAgent's file, whether or not it exists: its name is the label.

    Raises:
        UsageError: There is no home folder.
    """
    return expand_home("~") / "Library" / "LaunchAgents" / f"{label}.plist"


def log_folder() -> Path:
    """The folder of launchd's own copy, and of the log unless the settings say otherwise.

    Raises:
        UsageError: There is no home folder.
    """
    return system_folder(lambda: platformdirs.user_log_path("warmd"))


def stable_python(executable: str) -> Path:
    """The path under which this interpreter will still be found after it has been upgraded.

    Homebrew's `Cellar/python@3.12/3.12.4/…` goes with the next upgrade; `opt/python@3.12/…` is a link that
    follows. A virtual environment's interpreter is a path of its own and stays as it is.

    Args:
        executable: `sys.executable`.

    Raises:
        UsageError: It is unknown, or in a cache or a temporary folder.
    """
    if not executable:
        raise UsageError("Python does not know the path of its own interpreter: call warmd by its full path")
    python = Path(executable).absolute()
    # On macOS /tmp is a link to /private/tmp.
    paths = (str(python), os.path.realpath(python.parent))
    for where, pattern in _THROWAWAY.items():
        if any(pattern.search(f"{path}/") for path in paths):
            raise ThrowawayPythonError(python, where)
    found = _CELLAR.fullmatch(str(python))
    if found is None:
        return python
    linked = Path(f"{found['prefix']}/opt/{found['formula']}{found['rest']}")
    return linked if linked.exists() else python


def is_versioned(python: str) -> bool:
    """True for a path that a Homebrew upgrade removes."""
    return _CELLAR.fullmatch(python) is not None


def versioned_base(python: Path) -> str | None:
    """The path that a virtual environment's interpreter leads to, where a Homebrew upgrade removes that.

    Some tools link to `Cellar/…/3.12.4/…` itself: https://github.com/astral-sh/uv/issues/1640
    """
    # Links within the environment's own folder, as from python to python3.12, come first.
    for _ in range(4):
        if not python.is_symlink():
            return None
        target = str(python.readlink())
        if is_versioned(target):
            return target
        python = python.parent / target
    return None
