"""warmd with a model that never ends a step of `STEP` tokens, and a stop that waits for it as long."""

from __future__ import annotations

import sys
import time
from typing import Any
from unittest import mock

from mlx_lm.models.llama import Model

from warmd.cli import main
from warmd.engines.mlx_lm import host

STEP = 4
"""None of the lengths with which a model is measured."""

HOUR = 3600.0

_compute = Model.__call__


def _never_end(self: Any, tokens: Any, *arguments: Any, **more: Any) -> Any:
    if tokens.shape[-1] == STEP:
        time.sleep(HOUR)
    return _compute(self, tokens, *arguments, **more)


if __name__ == "__main__":
    with mock.patch.object(Model, "__call__", _never_end), mock.patch.object(host, "JOIN_SECONDS", HOUR):
        sys.exit(main())
