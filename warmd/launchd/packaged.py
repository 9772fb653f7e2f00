"""Files that come with the wheel and live elsewhere in a checkout."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

_IN_CHECKOUT = {"dev.warmd.plist": "launchd", "warmd.toml": "config"}


def read_packaged(name: str) -> bytes:
    """A file's bytes: the template of the LaunchAgent, or the sample of the settings.

    Raises:
        OSError: It is in neither place: the installation is broken.
    """
    packaged = resources.files("warmd.launchd").joinpath(name)
    if packaged.is_file():
        return packaged.read_bytes()
    # The wheel's build puts it beside this module; a checkout has it only where people look for it.
    return (Path(__file__).parents[2] / _IN_CHECKOUT[name] / name).read_bytes()
