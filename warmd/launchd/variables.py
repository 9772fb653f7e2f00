"""Which variables the service gets: those of the shell that installs it, and what a person wrote in its file.

The rule: each `warmd install` carries warmd's own variables and those of Hugging Face's folders as its shell
has them then, and no others of these. What else is in the installed file was written by hand, and stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from warmd.config import expand_home
from warmd.errors import UsageError
from warmd.settings import AUTO, PATHS

CARRIED = (
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "HF_ENDPOINT",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
)
"""Variables that say where things are, for the service and for a shell alike. Tokens are left behind: the
file is no place for secrets."""

_XDG = ("XDG_STATE_HOME", "XDG_CACHE_HOME")
_SETTINGS = tuple(f"WARMD_{section}_{key}".upper() for section, key in PATHS)
PATH_VARIABLES = ("WARMD_CONFIG", *_SETTINGS, "HF_HOME", "HF_HUB_CACHE", *_XDG)
"""launchd starts the service in `/`: what these name must be named from the root."""

TEMPLATES_OWN = ("HOME", "PATH", "PYTHONUNBUFFERED")


def is_carried(name: str) -> bool:
    """True for a variable that is taken from the shell."""
    return name.startswith("WARMD_") or name in CARRIED


def is_relative(name: str, value: str) -> bool:
    """True for the value of a path variable that depends on the folder one is in."""
    return not (value == "" or _is_word(name, value) or value.startswith(("/", "~")))


def _is_word(name: str, value: str) -> bool:
    """True for `auto` where it is no path; the settings refuse it where it means nothing."""
    return name in _SETTINGS and value == AUTO


def ignored(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Variables that count nowhere, as they are no absolute paths: `platformdirs` passes them over.

    Source: https://specifications.freedesktop.org/basedir-spec/
    """
    return tuple(name for name in _XDG if environment.get(name) and not environment[name].startswith("/"))


def check_from_root(variables: Mapping[str, str]) -> None:
    """Stop where the service means other folders than this process would.

    Raises:
        UsageError: A path of warmd's own depends on the folder one is in.
    """
    for name in ("WARMD_CONFIG", *_SETTINGS):
        if is_relative(name, value := variables.get(name, "")):
            raise UsageError(
                f"the LaunchAgent's {name}: expected an absolute path, found {value!r}, which the service "
                "takes against /: nothing is removed; `warmd uninstall` goes without --purge"
            )


def make_environment(environment: Mapping[str, str], installed: Mapping[str, str]) -> dict[str, str]:
    """The variables of the service, besides those that the template has.

    Args:
        environment: The shell's.
        installed: Those of the file that is installed.

    Raises:
        UsageError: One that is a path is blank, or begins with `~` and there is no home folder.
    """
    by_hand = {
        name: value for name, value in installed.items() if name not in TEMPLATES_OWN and not is_carried(name)
    }
    return {
        **by_hand,
        **{
            name: _absolute(name, environment[name])
            for name in environment
            if is_carried(name) and name not in ignored(environment)
        },
    }


def _absolute(name: str, value: str) -> str:
    if name not in PATH_VARIABLES or value == "" or _is_word(name, value):
        return value
    if not value.strip():
        raise UsageError(f"{name}: expected a path, found {value!r}")
    return str(expand_home(value).absolute())


@contextmanager
def as_service(variables: Mapping[str, str] | None) -> Iterator[None]:
    """Within the block this process has the service's variables, and so means the same folders.

    Args:
        variables: Those of the installed file; None where none is installed, and the shell's count.
    """
    before = dict(os.environ)
    if variables is not None:
        for name in filter(is_carried, before):
            del os.environ[name]
        os.environ.update({name: value for name, value in variables.items() if is_carried(name)})
    try:
        yield
    finally:
        if variables is not None:
            os.environ.clear()
            os.environ.update(before)
