"""Which variables the service gets: those of the shell that installs it, and what a person wrote in its file.

The rule: each `warmd install` carries warmd's own variables and those of Hugging Face's folders as its shell
has them then, and no others of these. What else is in the installed file was written by hand, and stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from warmd.config import AUTO, PATHS, expand_home

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

PATH_VARIABLES = (
    "WARMD_CONFIG",
    *(f"WARMD_{section}_{key}".upper() for section, key in PATHS),
    *("HF_HOME", "HF_HUB_CACHE", "XDG_STATE_HOME", "XDG_CACHE_HOME"),
)
"""launchd starts the service in `/`: what these name must be named from the root."""

TEMPLATES_OWN = ("HOME", "PATH", "PYTHONUNBUFFERED")


def is_carried(name: str) -> bool:
    """True for a variable that is taken from the shell."""
    return name.startswith("WARMD_") or name in CARRIED


def is_relative(value: str) -> bool:
    """True for the value of a path variable that depends on the folder one is in."""
    return value not in ("", AUTO) and not value.startswith(("/", "~"))


def make_environment(environment: Mapping[str, str], installed: Mapping[str, str]) -> dict[str, str]:
    """The variables of the service, besides those that the template has.

    Args:
        environment: The shell's.
        installed: Those of the file that is installed.
    """
    by_hand = {
        name: value for name, value in installed.items() if name not in TEMPLATES_OWN and not is_carried(name)
    }
    return {
        **by_hand,
        **{name: _absolute(name, environment[name]) for name in environment if is_carried(name)},
    }


def _absolute(name: str, value: str) -> str:
    is_path = name in PATH_VARIABLES and value not in ("", AUTO)
    return str(expand_home(value).absolute()) if is_path else value


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
