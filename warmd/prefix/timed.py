"""What changes by itself from one request to the next: the time that a template prints, or chance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from warmd.clock.moments import other_days, same_day, signature, unit_of
from warmd.clock.template import Reading
from warmd.errors import VolatileError
from warmd.radix import common_length

Render = Callable[[datetime], "list[int] | None"]
"""Renders one and the same request at a moment; None where the template refuses."""

_OFTEN = {"second": "every second", "minute": "every minute", "hour": "in the course of the day"}


@dataclass(frozen=True, slots=True)
class Change:
    """Where requests of one day part although nothing in them differs.

    Attributes:
        position: The first token that changes.
        often: How often it does.
        template_format: What the template asks the clock for there; None where it is not the time.
    """

    position: int
    often: str
    template_format: str | None = None


def find_change(render: Render, first: list[int], reading: Reading, length: int) -> Change | None:
    """What changes within a day in the first `length` tokens.

    Args:
        render: See `Render`.
        first: What it gave at the moment of the reading.
        reading: What the template asked for then. Nothing more is rendered but once, if that is nothing.
        length: How many tokens are of interest.
    """
    again = render(reading.moment)
    if again is not None and again != first and (kept := common_length(first, again)) <= length:
        return Change(kept, "with every request")
    position, often, told = length, None, {signature(reading.moment, reading.formats)}
    for unit, moment in same_day(reading.moment):
        same = _common(render, first, moment, reading, told)
        if same is not None and same < length:
            position, often = min(position, same), often or _OFTEN[unit]
    return None if often is None else Change(position, often, _timed_format(reading))


def is_daily(render: Render, first: list[int], reading: Reading, length: int) -> bool:
    """True when the first `length` tokens are others on another day."""
    told = {signature(reading.moment, reading.formats)}
    found = (_common(render, first, moment, reading, told) for moment in other_days(reading.moment))
    return any(same is not None and same < length for same in found)


def _common(
    render: Render, first: list[int], moment: datetime, reading: Reading, told: set[tuple[str, ...]]
) -> int | None:
    """How many tokens a render at a moment shares with the first; None where it cannot tell anything new."""
    answers = signature(moment, reading.formats)
    if answers in told:
        return None
    told.add(answers)
    ids = render(moment)
    return None if ids is None else common_length(first, ids)


def _timed_format(reading: Reading) -> str | None:
    return next((each for each in reading.formats if unit_of([each], reading.moment)), None)


def volatile_error(change: Change, contents: Sequence[tuple[str, int]], template: str) -> VolatileError:
    """Say what changes and where.

    Args:
        change: What.
        contents: What the entry gives, each with the token where it begins; some of it behind the change.
        template: The chat template's source.
    """
    behind = next((what for what, start in contents if start >= change.position), None)
    place = f"at token {change.position}" + (f", before {behind}" if behind else "")
    asked = change.template_format
    if asked is None:
        return VolatileError(change.position, f"the prompt changes {change.often} {place}")
    # What is written in the template is no prompt text; what came out of a message would be.
    shown = f" {asked!r}" if asked in template else ""
    line = _line_of(template, asked)
    at_line = f" (line {line} of the chat template)" if line else ""
    reason = f"the chat template prints the time{shown}{at_line}, which changes {change.often}, {place}"
    return VolatileError(change.position, reason)


def _line_of(template: str, asked: str) -> int | None:
    lines = [(n, line) for n, line in enumerate(template.splitlines(), 1) if "strftime_now" in line]
    return next((n for n, line in lines if asked in line), lines[0][0] if lines else None)
