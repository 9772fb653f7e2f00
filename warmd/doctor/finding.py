"""One thing that the doctor has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "problem", "unknown"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        name: What was looked at.
        state: `ok`; `warning`: it works, but not as it could; `problem`: it does not work; `unknown`: it
            cannot be told, or does not apply here.
        what: The finding, in one line.
        fix: What to do about it, in one line; None where there is nothing to do.
    """

    name: str
    state: State
    what: str
    fix: str | None = None
