"""What can go wrong with the Mac service, beside what launchctl says."""

from __future__ import annotations

from warmd.errors import CannotStartError


class PortTakenError(CannotStartError):
    """Another program listens where the server should."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"{url} is taken by another program (`lsof -i -P | grep LISTEN` names it): "
            "stop that one, or choose another port with --port"
        )
