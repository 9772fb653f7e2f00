"""`warmd` with a vllm-mlx whose engine ends by itself at the first request."""

from __future__ import annotations

import sys
from typing import Any

from vllm_mlx import engine_core

from warmd.cli import main


def add_request(self: Any, *args: Any, **more: Any) -> Any:
    """Take the engine's loop away under the request, which gets no answer."""
    self._task.cancel()
    return original(self, *args, **more)


original = engine_core.EngineCore.add_request
engine_core.EngineCore.add_request = add_request

if __name__ == "__main__":
    sys.exit(main())
