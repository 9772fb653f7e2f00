"""What can go wrong while capturing. No message holds prompt text."""

from __future__ import annotations

from pathlib import Path

from warmd.errors import WarmdError


class NothingSharedError(WarmdError):
    """The requests begin with nothing that could be kept warm."""


class NotSavedError(WarmdError):
    """The entry was not added to the prompts file, which is as it was."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"nothing was saved to {path}: {reason}")
