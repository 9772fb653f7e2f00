"""`warmd` with a vllm-mlx whose first step fails after scheduling: it schedules the request once more."""

from __future__ import annotations

import sys
from typing import Any

from vllm_mlx import scheduler

from warmd.cli import main


def fail_once(batch_generator: Any) -> None:
    """Fail as a step does that finds a spoilt cache."""
    scheduler._sanitize_batch_generator_logits_processors = original
    raise TypeError("'NoneType' object is not subscriptable")


original = scheduler._sanitize_batch_generator_logits_processors
scheduler._sanitize_batch_generator_logits_processors = fail_once

if __name__ == "__main__":
    sys.exit(main())
