"""What can go wrong with a measurement."""

from __future__ import annotations

from warmd.errors import CannotStartError, UsageError, WarmdError


class ServerEndedError(CannotStartError):
    """The server that was to be measured has ended by itself."""

    def __init__(self, reason: str | None) -> None:
        self.reason = reason or "it gave no reason"
        super().__init__(f"the server has ended: {self.reason}")


class ServerRefusedError(UsageError):
    """The server that was to be measured does not know a flag, or not such a value."""

    def __init__(self, reason: str) -> None:
        what = reason.removeprefix("warmd serve: error: ")
        super().__init__(f"the server refuses its command line: {what}")


class AskedServerError(WarmdError):
    """A server that is measured cannot be talked to, or refuses."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url}: {reason}")


class NothingToMeasureError(WarmdError):
    """No entry of the file is warm."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__(f"no entry can be measured: {'; '.join(reasons) or 'the file has none'}")
