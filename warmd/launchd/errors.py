"""What can go wrong with the Mac service, beside what launchctl says."""

from __future__ import annotations

from warmd.errors import CannotStartError


class PortTakenError(CannotStartError):
    """Another process listens where the server should."""

    def __init__(self, url: str, *, is_warmd: bool = False, pid: int | None = None) -> None:
        who = "another warmd" if is_warmd else "another program"
        which = f"pid {pid}" if pid is not None else "`lsof -i -P | grep LISTEN` names it"
        super().__init__(
            f"{url} is taken by {who} ({which}): stop that one, or choose another port with "
            "`warmd install --port N`"
        )
