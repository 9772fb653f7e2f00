"""Which prefixes were being warmed when the process ended abruptly, and which of them are not tried again.

Nobody can tell who was to blame: the system kills for memory as a person kills by hand. So every abrupt end
counts against all that was being warmed just then, and one may happen to anybody: two are too many.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from warmd.files.state import FILL, Kind, as_count, as_number, as_text

TOO_MANY = 2
"""Abrupt ends of the process after which a prefix is not warmed any more."""

KEPT = 100
"""Suspects that are remembered, the latest ones."""


Cause = tuple[str, str, str, str]
"""Key of a prefix, model, its files and memory limit: with another of them it is another story."""


def happened(ends: int) -> str:
    """What has happened to a suspect, for a person."""
    return f"the process ended abruptly {ends} times while warming it"


def way_out(rewarm: str = "NAME") -> str:
    """What a person can do for one that is not warmed any more.

    Args:
        rewarm: Its names, as a shell takes them.
    """
    return f"edit it, change the model or [memory] limit, or run `warmd rewarm {rewarm}`"


@dataclass(frozen=True, slots=True)
class Suspect:
    """A prefix that is being warmed, or was when the process ended.

    Attributes:
        key: `warmd.engines.base.Prefix.key`.
        model: The model that it is for.
        limit: The memory limit, as it is set.
        entries: Names of the entries that begin with it.
        tokens: Its length.
        ends: How often the process ended abruptly meanwhile.
        at: When that was noticed last, in seconds since the epoch.
        fingerprint: Of the model's files, `warmd.engines.base.Identity.fingerprint`.
    """

    key: str
    model: str
    limit: str
    entries: tuple[str, ...]
    tokens: int
    ends: int = 0
    at: float = 0.0
    fingerprint: str = ""

    @property
    def cause(self) -> Cause:
        """What tells it from others."""
        return self.key, self.model, self.fingerprint, self.limit

    @property
    def is_quarantined(self) -> bool:
        """True when it is not to be warmed any more."""
        return self.ends >= TOO_MANY


@dataclass(frozen=True, slots=True)
class Suspects:
    """All of them.

    Attributes:
        warming: Those that are being warmed: left over in the file, they are the marks of an abrupt end.
        ended: Those that abrupt ends count against, the latest last.
    """

    warming: tuple[Suspect, ...] = ()
    ended: tuple[Suspect, ...] = ()

    def begin(self, suspect: Suspect) -> Suspects:
        """The warming of one begins."""
        return replace(self, warming=(*_without(self.warming, suspect.cause), suspect))

    def stop(self, cause: Cause) -> Suspects:
        """The warming of one is over, however it went."""
        return replace(self, warming=_without(self.warming, cause))

    def clear(self, cause: Cause) -> Suspects:
        """What happened to one counts no more."""
        return replace(self, ended=_without(self.ended, cause))

    def after_end(self, now: float) -> Suspects:
        """What a new process makes of the marks that it finds, at a time in seconds since the epoch."""
        ends = {suspect.cause: suspect.ends for suspect in self.ended}
        met = tuple(replace(suspect, ends=ends.get(suspect.cause, 0) + 1, at=now) for suspect in self.warming)
        causes = {suspect.cause for suspect in met}
        others = tuple(suspect for suspect in self.ended if suspect.cause not in causes)
        return Suspects((), (*others, *met)[-KEPT:])

    def has_no_marks_beyond(self, others: Suspects) -> bool:
        """True when all that is marked here is marked there."""
        return {mark.cause for mark in self.warming} <= {mark.cause for mark in others.warming}

    def find(self, cause: Cause) -> Suspect | None:
        """What abrupt ends count against one, if any do."""
        return next((suspect for suspect in self.ended if suspect.cause == cause), None)


def _without(suspects: tuple[Suspect, ...], cause: Cause) -> tuple[Suspect, ...]:
    return tuple(suspect for suspect in suspects if suspect.cause != cause)


def suspects_json(suspects: Suspects) -> dict[str, Any]:
    """As JSON."""
    return {
        "warming": [asdict(suspect) for suspect in suspects.warming],
        "ended": [asdict(suspect) for suspect in suspects.ended],
    }


def read_suspects_json(value: Any) -> Suspects:
    """From JSON.

    Raises:
        ValueError: It is something else.
    """
    try:
        warming, ended = value["warming"], value["ended"]
        return Suspects(tuple(map(_suspect, warming)), tuple(map(_suspect, ended)))
    except (KeyError, TypeError, AttributeError, OverflowError):
        raise ValueError("expected suspects") from None


def is_suspects(value: Any) -> bool:
    """True for what is written in such a file, and nothing beside it.

    Raises:
        ValueError: A part is something else.
    """
    return set(value) == {"warming", "ended"} and isinstance(read_suspects_json(value), Suspects)


def _suspect(value: Mapping[str, Any]) -> Suspect:
    return Suspect(
        key=as_text(value["key"]),
        model=as_text(value["model"]),
        limit=as_text(value["limit"]),
        entries=tuple(map(as_text, value["entries"])),
        tokens=as_count(value["tokens"]),
        ends=as_count(value["ends"]),
        at=as_number(value["at"]),
        fingerprint=as_text(value.get("fingerprint", "")),
    )


_SAMPLE = Suspect(FILL, FILL, FILL, (FILL,), 0, 0, 0.5, FILL)
KIND = Kind(
    is_suspects,
    re.compile(rb'\{"warming": \[(?:\], "ended": \[)?\{"key": "[^"\\]*", "model": '),
    [suspects_json(Suspects((_SAMPLE,), (_SAMPLE,)))],
)
"""`suspects_json` as it is written."""
