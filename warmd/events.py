"""The event catalogue: every name that warmd logs, with its level and its fields.

The core only builds `Event` values and hands them to a callable; who writes them where is `warmd.logs`'s
business. Fields are flat, numbers are in base units, and no field ever holds prompt text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Level = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Kind:
    """What is fixed about an event: its level and exactly which fields it carries."""

    level: Level
    fields: tuple[str, ...]


CATALOGUE: Mapping[str, Kind] = {
    "daemon.started": Kind("info", ("version", "pid", "path", "engine")),
    "daemon.ready": Kind("info", ("model", "entries", "url")),
    "daemon.stopping": Kind("info", ("reason",)),
    "daemon.stopped": Kind("info", ("exit_code", "reason")),
    "prompts.accepted": Kind(
        "info", ("generation", "sha256", "entries", "added", "edited", "removed", "unchanged")
    ),
    "prompts.rejected": Kind("error", ("sha256", "kept_generation", "errors")),
    "plan.made": Kind("info", ("generation", "keep", "warm", "drop", "defer", "new_tokens")),
    "entry.warming": Kind("info", ("entry", "tokens")),
    "entry.warmed": Kind(
        "info", ("entry", "tokens", "new_tokens", "reused_tokens", "source", "ms", "kv_bytes")
    ),
    "entry.failed": Kind("warning", ("entry", "state", "reason", "retry_in_s")),
    "entry.dropped": Kind("info", ("entry", "tokens")),
    "entry.lost": Kind("warning", ("entry", "tokens")),
    "engine.model_changed": Kind("info", ("model", "previous")),
    "engine.died": Kind("error", ("reason",)),
    "watch.rearmed": Kind("info", ("directory",)),
    "watch.degraded": Kind("warning", ("reason",)),
}


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, ready to be logged."""

    name: str
    level: Level
    fields: Mapping[str, Any]


Emit = Callable[[Event], None]


def make_event(name: str, *, level: Level | None = None, **fields: Any) -> Event:
    """Build an event of the catalogue.

    Args:
        name: A key of `CATALOGUE`.
        level: Overrides the catalogue's level.
        fields: Exactly the catalogue's fields, in any order.

    Raises:
        ValueError: The name is unknown, or the fields are not exactly the catalogue's.
    """
    kind = CATALOGUE.get(name)
    if kind is None or set(fields) != set(kind.fields):
        raise ValueError(f"not in the event catalogue: {name} with {sorted(fields)}")
    return Event(name, level or kind.level, {key: fields[key] for key in kind.fields})
