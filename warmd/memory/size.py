"""Sizes as people write and read them."""

from __future__ import annotations

import re

_DECIMAL = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BINARY = {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_FACTORS = {"": 1, **_DECIMAL, **_BINARY}
_NUMBER = r"\d+(?:_\d+)*(?:\.\d+(?:_\d+)*)?"
_SIZE = re.compile(rf"\s*(?P<number>{_NUMBER})[ \t]*(?P<unit>(?:[KMGT]I?)?B|)\s*", re.ASCII | re.IGNORECASE)
# Nobody's memory needs more characters, and neither does a message that quotes them.
_LONGEST = 40
SMALLEST_LIMIT = 10**6
"""Bytes. Less holds no state of any model: it is a slip."""


def parse_size(text: str) -> int:
    """Read a size such as ``12GB``, ``1.5 GiB`` or ``800_000``, in bytes.

    KB, MB, GB and TB are powers of 1,000, KiB, MiB, GiB and TiB of 1,024; case does not matter, and a number
    without a unit is bytes. Parts of a byte are cut off. Few bytes must be called so (``12 B``): who writes
    ``12`` has forgotten the unit.

    Raises:
        ValueError: It is not a size, or negative, or a small number without a unit; the message is one line
            that says what was expected.
    """
    return _parse(text, "a size")


def parse_limit(text: str) -> int | None:
    """Read a limit: a size as `parse_size` reads it, in bytes and at least 1 MB, or None for ``auto``.

    Raises:
        ValueError: It is neither; the message is one line that says what was expected.
    """
    if text.strip().lower() == "auto":
        return None
    limit = _parse(text, "auto or a size")
    if limit < SMALLEST_LIMIT:
        # Rather said than obeyed: it would keep nothing warm, which nobody installs this program for.
        raise _complaint(text, f"auto or a size of at least {format_size(SMALLEST_LIMIT)}")
    return limit


def format_size(size: int) -> str:
    """A number of bytes for people, in decimal units with at most three significant digits: ``1.2 GB``."""
    # Chosen by the rounded number: 999,600 bytes are 1 MB, not 1000 KB.
    rounded = {unit: float(f"{size / factor:.3g}") for unit, factor in _DECIMAL.items()}
    unit = next((unit for unit, number in rounded.items() if abs(number) < 1000), "TB")
    return f"{rounded[unit]:.15g} {unit}"


def _parse(text: str, expected: str) -> int:
    match = _SIZE.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise _complaint(text, f"{expected} such as 12GB or 800MiB")
    # In whole numbers, for floats are not exact: 1.1GB is 1,100,000,000 bytes.
    whole, _, part = match["number"].replace("_", "").partition(".")
    scale: int = 10 ** len(part)
    size = int(whole + part) * _FACTORS[match["unit"].upper()] // scale
    if not match["unit"] and 0 < size < SMALLEST_LIMIT:
        raise _complaint(text, f"{expected} such as 12GB or 800MiB", f", which is {size:,} bytes")
    return size


def _complaint(text: str, expected: str, meaning: str = "") -> ValueError:
    found = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return ValueError(f"expected {expected}, found {found!r}{meaning}")
