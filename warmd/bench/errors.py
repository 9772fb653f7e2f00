"""What can go wrong with a measurement."""

from __future__ import annotations

from warmd.errors import CannotStartError, WarmdError


class ServerEndedError(CannotStartError):
    """The server that was to be measured has ended by itself."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(f"the server has ended: {reason or 'it gave no reason'}")


class AskedServerError(WarmdError):
    """A server that is measured cannot be talked to, or refuses."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url}: {reason}")


class NothingToMeasureError(WarmdError):
    """No entry of the file is warm."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__(f"no entry can be measured: {'; '.join(reasons) or 'the file has none'}")
