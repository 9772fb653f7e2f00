"""What the tests beside a real vllm-mlx share.

It needs an older mlx-lm than the embedded engine: `.ci/run` has a second environment for it.
"""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """A home folder of its own: vllm-mlx keeps its cache there between two runs."""
    return {"HOME": str(tmp_path / "home")}
