"""What Python code prints to stderr, which carries JSON lines and nothing else."""

from __future__ import annotations

import io
import time
from typing import TextIO

from warmd.events import FOREIGN
from warmd.logs import Log


class StrayOutput(io.TextIOBase):
    """Stands in for stderr: what is printed there becomes a line that tells how much, but not what.

    At most one line a second: a traceback or a progress bar is many prints.
    """

    encoding = "utf-8"

    def __init__(self, log: Log, original: TextIO | None = None) -> None:
        self._log = log
        self._original = original
        self._characters = 0
        self._quiet_until = 0.0

    def write(self, text: str) -> int:
        """Count a print; white space alone is the end of one."""
        if text.strip():
            self._characters += len(text)
            if time.monotonic() >= self._quiet_until:
                self._quiet_until = time.monotonic() + 1.0
                count, self._characters = self._characters, 0
                self._log.write(FOREIGN, "warning", logger="stderr", message=None, characters=count)
        return len(text)

    def fileno(self) -> int:
        """The real one, for child processes and `faulthandler`."""
        return self._original.fileno() if self._original else super().fileno()

    def writable(self) -> bool:
        """True: it takes text."""
        return True

    def isatty(self) -> bool:
        """False: progress bars and colours have no place here."""
        return False
