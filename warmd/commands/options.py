"""What several commands take on their command lines."""

from __future__ import annotations

import argparse
from dataclasses import replace

from warmd.config import Settings
from warmd.errors import UsageError
from warmd.memory.size import parse_limit


def add_memory_limit(parser: argparse.ArgumentParser) -> None:
    """Add ``--memory-limit``."""
    parser.add_argument(
        "--memory-limit",
        metavar="SIZE",
        help="what the process may take while warming, such as 12GB, or auto (default: from the config)",
    )


def with_memory_limit(settings: Settings, limit: str | None) -> Settings:
    """Settings in which a given ``--memory-limit`` counts.

    Raises:
        UsageError: It is not a limit.
    """
    if limit is None:
        return settings
    try:
        parse_limit(limit)
    except ValueError as error:
        raise UsageError(f"--memory-limit: {error}") from None
    return replace(settings, memory=replace(settings.memory, limit=limit))
