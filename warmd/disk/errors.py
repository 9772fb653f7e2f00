"""What can be wrong with the files."""

from __future__ import annotations


class DamagedError(Exception):
    """A file is not what was written.

    Args:
        name: The file.
        reason: In a few words, for a person; nothing of what is in it.
        is_hopeless: True unless somebody else may be able to use it, now or later.
    """

    def __init__(self, name: str, reason: str, *, is_hopeless: bool = True) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason
        self.is_hopeless = is_hopeless


class NotNowError(Exception):
    """A piece cannot be made now, as may happen at any time: to be asked again later, without a word."""


class LockedError(Exception):
    """Another process writes to the folder."""

    def __init__(self) -> None:
        super().__init__("another process writes to this folder, which this one only reads")


class FullError(Exception):
    """What is declared takes all that the folder may take.

    Args:
        max_bytes: The bound.
    """

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"[store] max_bytes ({max_bytes} bytes) does not hold all entries")
        self.max_bytes = max_bytes
