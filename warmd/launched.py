"""Whether launchd started this process."""

from __future__ import annotations

from collections.abc import Mapping


def is_under_launchd(environment: Mapping[str, str]) -> bool:
    """True for a service, which launchd starts again when it ends with a failure.

    launchd names in XPC_SERVICE_NAME the service of each process; for what is started from a terminal that is
    ``0``, or the application that the terminal belongs to.
    """
    name = environment.get("XPC_SERVICE_NAME") or "0"
    return name != "0" and not name.startswith("application.")
