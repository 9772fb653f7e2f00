"""What several commands take on their command lines."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import replace

from warmd.errors import UsageError
from warmd.memory.size import parse_limit
from warmd.settings import Settings

WAIT_SECONDS = 120.0


def add_prompts(parser: argparse.ArgumentParser) -> None:
    """Add ``--prompts``."""
    parser.add_argument("--prompts", metavar="FILE", help="the warm-prompts file (default: from the config)")


def add_api_key(parser: argparse.ArgumentParser, whose: str) -> None:
    """Add ``--api-key-env`` and ``--api-key-file``, of which one may be given."""
    key = parser.add_mutually_exclusive_group()
    key.add_argument("--api-key-env", metavar="NAME", help=f"environment variable with {whose} API key")
    key.add_argument("--api-key-file", metavar="FILE", help=f"file with {whose} API key")


def add_wait(parser: argparse.ArgumentParser) -> None:
    """Add ``--wait``."""
    parser.add_argument(
        "--wait",
        metavar="S",
        type=seconds_or_zero,
        default=WAIT_SECONDS,
        help=f"seconds to wait for the server (default: {WAIT_SECONDS:g}; 0 does not wait)",
    )


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


def port_number(text: str) -> int:
    """A TCP port, for argparse."""
    value = int(text)
    if not 1 <= value <= 65535:
        raise argparse.ArgumentTypeError(f"expected 1 to 65535, found {value}")
    return value


port_number.__name__ = "port number"


def whole_number(minimum: int) -> Callable[[str], int]:
    """A whole number that is not too small, for argparse."""

    def parse(text: str) -> int:
        value = int(text)
        if value < minimum:
            raise argparse.ArgumentTypeError(f"expected at least {minimum}, found {value}")
        return value

    parse.__name__ = "whole number"
    return parse


def seconds_or_zero(text: str) -> float:
    """A time span, for argparse."""
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"expected 0 or more, found {value:g}")
    return value


seconds_or_zero.__name__ = "number of seconds"


def seconds(text: str) -> float:
    """A time span of some length, for argparse."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"expected more than 0, found {value:g}")
    return value


seconds.__name__ = "number of seconds"
