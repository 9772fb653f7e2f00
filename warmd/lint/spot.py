"""A place in a text that will be another in other requests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spot:
    """Something that changes.

    Attributes:
        start: Where it begins, in characters.
        end: Where it ends.
        what: What it looks like, for a person. Holds nothing of the text.
        is_labelled: True when the text itself says so: "current date:".
    """

    start: int
    end: int
    what: str
    is_labelled: bool = False
