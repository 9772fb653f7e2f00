"""Single flags of a command line, and what hosts and ports look like there."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Sequence


def flag_value(arguments: Sequence[str], flag: str) -> str | None:
    """What a command line gives to a flag, written either way; the last one counts."""
    value = None
    for index, argument in enumerate(arguments):
        if argument == flag and index + 1 < len(arguments):
            value = arguments[index + 1]
        elif argument.startswith(f"{flag}="):
            value = argument.removeprefix(f"{flag}=")
    return value


def has_flag(arguments: Sequence[str], flag: str) -> bool:
    """True when a flag is there, with a value or without."""
    return any(argument == flag or argument.startswith(f"{flag}=") for argument in arguments)


def flags_of(arguments: Sequence[str]) -> list[str]:
    """The names of all flags, each once."""
    return list(
        dict.fromkeys(argument.partition("=")[0] for argument in arguments if argument.startswith("-"))
    )


def is_host(text: str) -> bool:
    """True for an IP address, and for what can be the name of a host."""
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(text)
        return True
    labels = text.removesuffix(".").split(".")
    return len(text) <= 253 and all(re.fullmatch(r"[A-Za-z0-9_-]{1,63}", label) for label in labels)


def port_of(text: str) -> int | None:
    """A TCP port; None for what is none."""
    is_number = text.isascii() and text.isdigit() and len(text) <= 5
    return int(text) if is_number and 1 <= int(text) <= 65535 else None
