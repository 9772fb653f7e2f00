"""How long tests wait for what should happen."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio

PATIENCE = 180.0
"""Seconds after which something that should have happened has not. Only failing tests wait this long: on a
machine that does other things, too, all takes ten times as long, and is no less right."""


def wait_until(is_true: Callable[[], object]) -> None:
    """Wait for what nobody tells of: files, other processes."""
    deadline = time.monotonic() + PATIENCE
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def eventually(is_true: Callable[[], object]) -> None:
    """Wait for what nobody tells of, while this event loop goes on."""
    with anyio.fail_after(PATIENCE):
        while not is_true():  # noqa: ASYNC110 - files and counters have no event to wait for
            await anyio.sleep(0.01)
