"""Which commands help, where: `warmd restart` and `warmd install` know only what launchd has, or can have."""

from __future__ import annotations

RESTART = "`warmd restart`"
INSTALL = "`warmd install`"
INSTALL_MODEL = "`warmd install --model M`"


def start_command(*, has_file: bool, is_readable: bool, is_loaded: bool) -> str:
    """What starts a daemon.

    Args:
        has_file: A LaunchAgent is there, and a launchd to load it.
        is_readable: It can be read.
        is_loaded: launchd has the service.
    """
    if is_loaded:
        return RESTART
    if has_file:
        return INSTALL if is_readable else INSTALL_MODEL
    return "`warmd serve --model M`"


def restart_command(daemon_pid: int | None, job_pid: int | None) -> str:
    """What puts another daemon in the place of one that runs.

    Args:
        daemon_pid: Of the daemon; None where it does not answer.
        job_pid: Of the service's process; None where there is none.
    """
    if job_pid is not None and daemon_pid in (None, job_pid):
        return RESTART
    return "end its process, and start it again as it was started"
