"""Which tests need the embedded engine: beside vllm-mlx there is an older mlx-lm, and none."""

from __future__ import annotations

from importlib.metadata import version

import pytest

needs_embedded = pytest.mark.skipif(
    tuple(map(int, version("mlx-lm").split(".")[:2])) < (0, 32),
    reason="the embedded engine needs mlx-lm 0.32, and so does `warmd check --model`",
)
