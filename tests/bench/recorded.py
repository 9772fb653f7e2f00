"""`warmd`, which notes every step of work on the engine's thread in the file that `BENCH_STEPS` names."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from warmd.cli import main
from warmd.engines.mlx_lm.desk import Desk

VARIABLE = "BENCH_STEPS"


class Step(NamedTuple):
    """One step.

    Attributes:
        began: By `time.perf_counter`, which all processes of a machine share.
        ended: Likewise.
    """

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.began

    def within(self, began: float, ended: float) -> float:
        """Seconds of it between two moments."""
        return max(0.0, min(self.ended, ended) - max(self.began, began))


def read_warming(path: Path) -> list[Step]:
    """The steps so far, without those that are done whoever waits, as they take no time."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Step(began, ended) for began, ended, is_quick in map(json.loads, lines) if not is_quick]


@contextmanager
def _noting(path: Path) -> Iterator[None]:
    step = Desk._step

    def noted(self: Desk, job: Any, queue: Any) -> None:
        began = time.perf_counter()
        step(self, job, queue)
        file.write(json.dumps([began, time.perf_counter(), queue is self._quick]) + "\n")

    with path.open("a", buffering=1, encoding="utf-8") as file, mock.patch.object(Desk, "_step", noted):
        yield


if __name__ == "__main__":
    with _noting(Path(os.environ[VARIABLE])):
        sys.exit(main())
