"""Counts starts that failed for a reason that does not go away, so that nobody tries for ever.

launchd starts again whatever ends with a failure, every few seconds and without end. What ends with 0 it
leaves alone (`KeepAlive {SuccessfulExit: false}`). A person at a terminal always gets the true exit code.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from warmd.config import load_settings, settings_without
from warmd.control.place import state_folder
from warmd.errors import UsageError, WarmdError
from warmd.events import Emit, make_event
from warmd.files.state import FILL, Kind, as_count, as_number, as_text, read_json, write_json
from warmd.launched import is_under_launchd

FILE_NAME = "starts.json"
TOO_MANY = 5
WITHIN_SECONDS = 600.0
HOPELESS = (2, 3)
"""Exit codes of starts that would fail again: usage, cannot start."""
GIVE_UP_FLAG = "--give-up"


@dataclass(frozen=True, slots=True)
class FailedStart:
    """One start that failed.

    Attributes:
        at: Seconds since the epoch.
        exit_code: What the process would have ended with.
        reason: In one line.
    """

    at: float
    exit_code: int
    reason: str


@dataclass(frozen=True, slots=True)
class FailedStarts:
    """What is known of them.

    Attributes:
        failed: The latest ones, the latest last.
        gave_up_at: When they were too many for the last time, in seconds since the epoch.
    """

    failed: tuple[FailedStart, ...] = ()
    gave_up_at: float | None = None

    @property
    def are_over(self) -> bool:
        """True when the last one was one too many: nobody tries by itself any more."""
        return bool(self.failed) and self.failed[-1].at == self.gave_up_at

    def recent(self, now: float) -> tuple[FailedStart, ...]:
        """Those that count: not of a time long ago, nor of the future, nor from before giving up.

        What lies in the future is of a clock that was set since. Whoever starts by hand after we gave up gets
        as many tries again.
        """
        return tuple(
            failure
            for failure in self.failed
            if 0 <= now - failure.at < WITHIN_SECONDS
            and not (self.gave_up_at is not None and failure.at <= self.gave_up_at <= now)
        )

    def after(self, failure: FailedStart) -> FailedStarts:
        """What is known after one more."""
        known = replace(self, failed=(*self.failed, failure)[-TOO_MANY:])
        is_enough = len(known.recent(failure.at)) == TOO_MANY
        return replace(known, gave_up_at=failure.at) if is_enough else known


def is_supervised(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """True when something starts us again that goes by the exit code."""
    return GIVE_UP_FLAG in arguments or is_under_launchd(environment)


def starts_folder(environment: Mapping[str, str] | None = None) -> Path | None:
    """Where failed starts are counted: the state folder, as far as the settings tell; None without one."""
    environment = os.environ if environment is None else environment
    try:
        settings = load_settings(environment)
    except UsageError:
        # That may be what is wrong.
        settings = settings_without(environment)
    try:
        return state_folder(settings.state)
    except UsageError:
        return None


def read_failed_starts(folder: Path) -> FailedStarts:
    """What is written in a state folder; nothing where that cannot be read."""
    return read_json(folder / FILE_NAME, _failed_starts, FailedStarts())


def _failed_starts(value: Any) -> FailedStarts:
    gave_up_at = None if value["gave_up_at"] is None else as_number(value["gave_up_at"])
    return FailedStarts(tuple(map(_failed_start, value["failed"])), gave_up_at)


def is_failed_starts(value: Any) -> bool:
    """True for what is written in such a file, and nothing beside it.

    Raises:
        TypeError, LookupError: A part is something else.
    """
    return set(value) == {"failed", "gave_up_at"} and isinstance(_failed_starts(value), FailedStarts)


def _failed_start(value: Any) -> FailedStart:
    return FailedStart(as_number(value["at"]), as_count(value["exit_code"]), as_text(value["reason"]))


KIND = Kind(
    is_failed_starts,
    re.compile(rb'\{"failed": \[\{"at": [0-9.e+-]+, "exit_code": '),
    [asdict(FailedStarts((FailedStart(0.5, 0, FILL),), at)) for at in (None, 0.5)],
)
"""What `note_failed_start` writes."""


def note_failed_start(folder: Path, failure: FailedStart) -> bool:
    """Add one; True when it is one too many.

    Raises:
        OSError: It cannot be written, and so not be counted.
    """
    known = read_failed_starts(folder).after(failure)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_json(folder / FILE_NAME, asdict(known))
    return known.gave_up_at == failure.at


def forget_failed_starts(folder: Path) -> None:
    """A start has succeeded."""
    with contextlib.suppress(OSError):
        (folder / FILE_NAME).unlink(missing_ok=True)


def counting(
    start: Callable[[], int],
    emit: Emit,
    tell: Callable[[WarmdError], None],
    now: Callable[[], float] = time.time,
) -> int:
    """Run a start; its exit code, or 0 when it is one failure too many.

    Args:
        start: Returns when it ends, or raises why it could not.
        emit: Receives `daemon.gave_up`, as the last line.
        tell: Shows an error to a person.
        now: Seconds since the epoch.
    """
    try:
        return start()
    except WarmdError as error:
        tell(error)
        code, reason = error.exit_code, "; ".join(str(error).splitlines())
    except SystemExit as end:
        # The parsers, ours and that of mlx-lm's server, have said what is wrong.
        code, reason = _code(end), "the command line is wrong: see what the server's standard error says"
    folder = starts_folder()
    if code not in HOPELESS or folder is None:
        return code
    try:
        is_enough = note_failed_start(folder, FailedStart(now(), code, reason))
    except OSError:
        return code
    if not is_enough:
        return code
    emit(make_event("daemon.gave_up", failures=TOO_MANY, seconds=WITHIN_SECONDS, reason=reason))
    return 0


def _code(end: SystemExit) -> int:
    if isinstance(end.code, int):
        return end.code
    return 0 if end.code is None else 1
