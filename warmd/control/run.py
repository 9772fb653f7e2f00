"""The control socket of one run of the daemon, as far as there can be one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import anyio
from anyio.abc import TaskStatus

from warmd.control.errors import NoSocketError
from warmd.control.folder import claimed
from warmd.control.place import is_moved, socket_path
from warmd.control.server import ControlServer, Handler
from warmd.events import Emit, make_event
from warmd.files.atomic import remove_left_over


class Control:
    """Lets commands in. Without a socket the daemon goes on, and one event says why.

    Args:
        path: Of the socket; None where there can be none, which has been told.
        emit: Receives `control.…`.
    """

    def __init__(self, path: Path | None, emit: Emit) -> None:
        self._path = path
        self._emit = emit

    @property
    def owns_folder(self) -> bool:
        """True when the state folder is ours and can be used."""
        return self._path is not None

    async def serve(
        self,
        handlers: Mapping[str, Handler],
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Answer requests until cancelled; started once commands are let in, or cannot be."""
        is_open = False
        if self._path is not None:
            is_open = await self._serve(self._path, handlers, task_status)
        if not is_open:
            task_status.started()

    async def _serve(self, path: Path, handlers: Mapping[str, Handler], status: TaskStatus[None]) -> bool:
        """True when commands have been let in."""
        is_open = False
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(ControlServer(path, handlers).run)
                is_open = True
                status.started()
                if is_moved(path):
                    self._emit(make_event("control.moved", path=str(path)))
        except* NoSocketError as group:
            self._emit(make_event("control.failed", reason=str(group.exceptions[0])))
        except* Exception as group:  # noqa: BLE001 - live requests and warming do not depend on commands
            kind = type(group.exceptions[0]).__name__
            self._emit(make_event("control.failed", reason=f"unexpected {kind}"))
        return is_open


@contextlib.contextmanager
def control_of(folder: Path, emit: Emit) -> Iterator[Control]:
    """Own a state folder, and so its socket, within the block.

    Raises:
        AnotherDaemonError: It belongs to another daemon.
    """
    with contextlib.ExitStack() as owned:
        try:
            owned.enter_context(claimed(folder))
            path = socket_path(folder)
            remove_left_over(folder)
        except NoSocketError as error:
            emit(make_event("control.failed", reason=str(error)))
            path = None
        yield Control(path, emit)
