"""What people and programs get to see of the files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DiskStatus:
    """What is on disk.

    Attributes:
        path: The folder.
        files: How many files.
        bytes: Of all of them.
        problem: Why nothing is written or read now, or None.
    """

    path: str
    files: int
    bytes: int
    problem: str | None = None
