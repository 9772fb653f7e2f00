"""Runs the daemon inside a host's own event loop."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import anyio

from warmd.daemon import Daemon
from warmd.engines.host import HostEngine
from warmd.events import Emit, Event
from warmd.settings import Settings

logger = logging.getLogger("warmd")


@asynccontextmanager
async def attach(
    engine: Any, path: str | PathLike[str], settings: Settings | None = None, *, emit: Emit | None = None
) -> AsyncIterator[Daemon]:
    """Keep a warm-prompts file warm in an async engine while the block runs.

    Start-up is not held up: the block begins at once, and warming goes on beside it. Nothing that goes wrong
    in the daemon reaches the host.

    Args:
        engine: Any object with ``tokenizer``, ``stream_generate(prompt=…, max_tokens=…, temperature=…)`` and
            ``stream_chat(messages=…, …)``, both async generators whose outputs carry ``finished`` and
            ``prompt_tokens``; vllm-mlx's engines are such objects.
        path: The warm-prompts file; it may be missing for now.
        settings: Timings and bounds; by default the built-in ones.
        emit: Receives every event; by default they go to the standard library's logger ``warmd``.

    Yields:
        The running daemon, whose `statistics()` tells how things are.
    """
    daemon = Daemon(HostEngine(engine), Path(path), settings, emit=emit or log_event)
    error: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_run_apart, daemon)
        try:
            yield daemon
        except Exception as caught:  # noqa: BLE001 - raised below: a task group would wrap it
            error = caught
        tasks.cancel_scope.cancel()
    if error is not None:
        raise error


async def _run_apart(daemon: Daemon) -> None:
    try:
        await daemon.run()
    except Exception as error:  # noqa: BLE001 - the host serves on without us
        logger.error("the warmd daemon ended with %s", type(error).__name__)


def log_event(event: Event) -> None:
    """Write an event to the standard library's logger ``warmd``."""
    fields = " ".join(f"{key}={value}" for key, value in event.fields.items())
    logger.log(logging.getLevelName(event.level.upper()), "%s %s", event.name, fields)
