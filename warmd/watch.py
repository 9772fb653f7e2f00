"""Watches the directories of a set of files, and tells when it is time to look at them again.

An event never carries meaning: it only makes us compare what the files look like (`Signature`) with what was
seen when they were last read. So events of neighbours cost a few stat calls, lost events are healed by a slow
tick, and a file that is replaced, renamed, linked elsewhere or restored needs no case of its own.

Directories are watched, never files: the watch of a file goes silent after one atomic replace.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import anyio
import anyio.to_thread
import watchfiles
from anyio.abc import TaskStatus

from warmd.config import WatchSettings

_STEP_MILLISECONDS = 50
_SETTLE_STEP = 0.05
_MAX_LINKS = 40
_LIMIT_ERRORS = (errno.ENOSPC, errno.EMFILE, errno.ENFILE)

# Reports every change as information, also of files that are none of ours, and also into our own log file.
logging.getLogger("watchfiles").setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True)
class FileSignature:
    """What one file looks like without reading it; all None while it cannot be reached."""

    path: Path
    target: str | None = None
    device: int | None = None
    inode: int | None = None
    size: int | None = None
    mtime_ns: int | None = None
    ctime_ns: int | None = None


Signature = tuple[FileSignature, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """It is time to look. `still_changing`: the ceiling was reached before the files were quiet."""

    still_changing: bool = False


@dataclass(frozen=True, slots=True)
class Rearmed:
    """A watched directory vanished or came back, and the watch followed it."""

    directory: Path


@dataclass(frozen=True, slots=True)
class Degraded:
    """The system's events cannot be used; changes are found by polling."""

    reason: str


class EventSource(Protocol):
    """`watchfiles.awatch`, as far as it is used here."""

    def __call__(self, *paths: Path, **options: Any) -> AsyncIterator[object]:
        """Yield whenever something in one of the directories changed."""


# --- what decides: pure functions of the file system ----------------------------------------------


def signature(files: Collection[Path]) -> Signature:
    """What the files look like now, links followed. Makes a few system calls for each file."""
    return tuple(_file_signature(path) for path in files)


def _file_signature(path: Path) -> FileSignature:
    try:
        status, target = os.stat(path), os.path.realpath(path)  # noqa: PTH116 - one call, no objects
    except (OSError, ValueError):
        return FileSignature(path)
    return FileSignature(
        path, target, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    )


def directories_of(files: Collection[Path]) -> frozenset[Path]:
    """The directories whose entries decide what the files are: of each file, and of each link on the way.

    A directory that does not exist is replaced by its nearest ancestor that does, where it will appear.
    """
    found = {directory for path in files for directory in _directories_on_the_way(path)}
    return frozenset(_nearest_existing(directory) for directory in found)


def _directories_on_the_way(path: Path) -> set[Path]:
    """Walk a path as the system does, and note each directory in which a name could be pointed elsewhere."""
    found: set[Path] = set()
    current, parts, links = Path(path.anchor), deque(path.parts[1:]), 0
    while parts:
        part = parts.popleft()
        if part == "..":
            current = current.parent
            continue
        target = _link_target(current / part)
        if target is None or links == _MAX_LINKS:
            if not parts:
                found.add(current)
            current = current / part
            continue
        found.add(current)
        links += 1
        if target.is_absolute():
            current = Path(target.anchor)
        parts.extendleft(reversed(target.parts[1:] if target.is_absolute() else target.parts))
    return found


def _link_target(path: Path) -> Path | None:
    try:
        return path.readlink()
    except (OSError, ValueError):
        return None


def _nearest_existing(directory: Path) -> Path:
    while not directory.is_dir() and directory != directory.parent:
        directory = directory.parent
    return directory


Armed = frozenset[tuple[Path, int, int]]


def arming(files: Collection[Path]) -> Armed:
    """The directories to watch, each with what tells a re-created one from the one before."""
    return frozenset(filter(None, map(_identify, directories_of(files))))


def _identify(directory: Path) -> tuple[Path, int, int] | None:
    try:
        status = directory.stat()
    except OSError:
        return None
    return directory, status.st_dev, status.st_ino


def is_limit(error: BaseException) -> bool:
    """True for the errors with which the system refuses another watch, however they are dressed."""
    return getattr(error, "errno", None) in _LIMIT_ERRORS or "limit reached" in str(error)


# --- what acts ------------------------------------------------------------------------------------


class Watcher:
    """Tells when a set of files, which may change at any time, should be looked at.

    Args:
        settings: Timings.
        on_rearmed: Called when a directory vanished or came back.
        on_degraded: Called once when the system's events cannot be used.
        events: Where events come from.
    """

    def __init__(
        self,
        settings: WatchSettings,
        on_rearmed: Callable[[Rearmed], None] = lambda rearmed: None,
        on_degraded: Callable[[Degraded], None] = lambda degraded: None,
        events: EventSource = watchfiles.awatch,
    ) -> None:
        self._settings = settings
        self._on_rearmed = on_rearmed
        self._on_degraded = on_degraded
        self._events = events
        self._poll = settings.poll
        self._files: tuple[Path, ...] = ()
        self._seen: Signature = ()
        self._armed: Armed = frozenset()
        self._closing = False
        self._stop = anyio.Event()
        self._woken = anyio.Event()

    def follow(self, files: Collection[Path], seen: Signature) -> None:
        """Watch these files from now on.

        Args:
            files: Absolute paths; they need not exist.
            seen: Their `signature` from before they were read, so that no later change is missed.
        """
        is_same = tuple(files) == self._files
        self._files, self._seen = tuple(files), seen
        if not is_same:
            self._stop.set()

    async def settled(self) -> Look:
        """Return once the files differ from what was seen, and are quiet or the ceiling is reached."""
        while True:
            current = await self._signature()
            if current != self._seen:
                return await self._settle(current)
            with anyio.move_on_after(self._settings.rehash):
                await self._woken.wait()
            self._woken = anyio.Event()

    async def _settle(self, current: Signature) -> Look:
        began = quiet_since = anyio.current_time()
        while (now := anyio.current_time()) - quiet_since < self._settings.settle:
            if now - began >= self._settings.ceiling:
                return Look(still_changing=True)
            await anyio.sleep(min(_SETTLE_STEP, self._settings.settle / 2))
            latest = await self._signature()
            if latest != current:
                current, quiet_since = latest, anyio.current_time()
        return Look()

    async def _signature(self) -> Signature:
        # In a thread, as a network mount can block; abandoned when we are told to stop.
        return await anyio.to_thread.run_sync(signature, self._files, abandon_on_cancel=True)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Feed `settled` with events until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_forever)
            tasks.start_soon(self._check_arming)
            task_status.started()
            try:
                await anyio.sleep_forever()
            finally:
                # Cancelling awatch takes seconds; its own event takes milliseconds.
                self._closing = True
                self._stop.set()

    async def _watch_forever(self) -> None:
        """One watch after the other, each for as long as its directories are the right ones."""
        with anyio.CancelScope(shield=True):
            while not self._closing:
                self._stop = anyio.Event()
                await self._rearm()
                failed = await self._watch_once()
                self._wake()
                if failed and not self._closing:
                    # The slow tick finds changes meanwhile; the next arming may work again.
                    with anyio.move_on_after(self._settings.rehash):
                        await self._stop.wait()

    async def _rearm(self) -> None:
        wanted = await anyio.to_thread.run_sync(arming, self._files)
        before, self._armed = self._armed, wanted
        replaced = {path for path, *_ in before - wanted} & {path for path, *_ in wanted - before}
        for path in sorted(replaced | self._vanished(before, wanted)):
            self._on_rearmed(Rearmed(path))

    def _vanished(self, before: Armed, wanted: Armed) -> set[Path]:
        """Directories that are not there any more, or are there again after their ancestor was watched."""
        old, new = {path for path, *_ in before}, {path for path, *_ in wanted}
        gone = {path for path in old - new if not path.is_dir()}
        back = {path for path in new - old if any(parent in old for parent in path.parents)}
        return gone | back

    async def _watch_once(self) -> bool:
        """Watch the armed directories until told to stop or one of them is replaced; True when it failed."""
        paths = [path for path, *_ in self._armed]
        if not paths or not self._files:
            await self._stop.wait()
            return False
        try:
            async for _ in self._events(
                *paths,
                watch_filter=None,
                recursive=False,
                debounce=_STEP_MILLISECONDS,
                step=_STEP_MILLISECONDS,
                stop_event=self._stop,
                force_polling=self._poll,
                ignore_permission_denied=True,
            ):
                self._wake()
                if await anyio.to_thread.run_sync(arming, self._files) != self._armed:
                    return False
        except Exception as error:  # noqa: BLE001 - whatever the system refuses, the slow tick goes on
            self._degrade(error)
            return True
        return False

    def _degrade(self, error: Exception) -> None:
        if not is_limit(error) and isinstance(error, FileNotFoundError):
            return  # A directory that vanished while it was being armed: the next round sees it.
        if not self._poll:
            self._on_degraded(Degraded(f"{type(error).__name__}: {error}"))
        self._poll = True

    async def _check_arming(self) -> None:
        """Heal lost events: look anyway, and follow directories that were replaced unnoticed."""
        while True:
            await anyio.sleep(self._settings.rehash)
            if await anyio.to_thread.run_sync(arming, self._files, abandon_on_cancel=True) != self._armed:
                self._stop.set()

    def _wake(self) -> None:
        self._woken.set()
