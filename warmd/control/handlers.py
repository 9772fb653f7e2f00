"""What the daemon does for each command."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from warmd.capture.handler import capture_handler
from warmd.control.errors import ControlError
from warmd.control.server import Handler
from warmd.daemon import Daemon
from warmd.explain.handler import explain_handler
from warmd.status import document_json, status_json


def make_handlers(daemon: Daemon) -> dict[str, Handler]:
    """The handlers of a daemon, by command."""

    async def status(arguments: dict[str, Any]) -> Any:
        take(arguments)
        return status_json(daemon.statistics())

    async def rewarm(arguments: dict[str, Any]) -> Any:
        take(arguments, "names")
        entries = daemon.rewarm(as_names(arguments.get("names", [])))
        return {"entries": entries, "paused": daemon.is_paused}

    async def pause(arguments: dict[str, Any]) -> Any:
        take(arguments)
        was_paused = daemon.is_paused
        daemon.pause()
        return {"paused": True, "was_paused": was_paused}

    async def resume(arguments: dict[str, Any]) -> Any:
        take(arguments)
        was_paused = daemon.is_paused
        daemon.resume()
        return {"paused": False, "was_paused": was_paused}

    async def reload(arguments: dict[str, Any]) -> Any:
        take(arguments)
        return document_json(await daemon.reload())

    return {
        "status": status,
        "rewarm": rewarm,
        "pause": pause,
        "resume": resume,
        "reload": reload,
        "explain": explain_handler(daemon),
        "capture": capture_handler(daemon),
    }


def take(arguments: Collection[str], *known: str) -> None:
    """Check that there are no other arguments than these.

    Raises:
        ControlError: There are.
    """
    if unknown := sorted(set(arguments) - set(known)):
        raise ControlError(f"unknown argument {unknown[0][:40]!r}")


def as_names(value: Any) -> list[str]:
    """A list of entry names.

    Raises:
        ControlError: It is none.
    """
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ControlError("names: expected a list of names")
    return value
