"""Which files go: those that nobody has wanted for long, and the oldest of those beyond the bound."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from warmd.disk.record import Record
from warmd.memory.size import parse_size

AUTO = "auto"
DEFAULT_MAX_BYTES = 20 * 10**9
_SHARE = 10


def parse_max_bytes(text: str) -> int | None:
    """Read `[store] max_bytes`: a size, or None for ``auto``.

    Raises:
        ValueError: It is neither; the message says what was expected.
    """
    if text.strip().lower() == AUTO:
        return None
    try:
        return parse_size(text)
    except ValueError as error:
        raise ValueError(str(error).replace("expected a size", "expected auto or a size", 1)) from None


def most(max_bytes: int | None, free: int, held: int) -> int:
    """Bytes that files may take: as set, else 20 GB or a tenth of what is free without them, the smaller."""
    return max_bytes if max_bytes is not None else min(DEFAULT_MAX_BYTES, (free + held) // _SHARE)


def expired(records: Sequence[Record], wanted: Collection[str], before: float) -> list[Record]:
    """Files that are not wanted and were last wanted before a time, in seconds since the epoch."""
    return [record for record in records if record.name not in wanted and record.wanted_at < before]


def surplus(records: Sequence[Record], wanted: Collection[str], max_bytes: int) -> list[Record]:
    """Files that are not wanted, the oldest first, as many as it takes to come under a bound.

    What is wanted is left alone: where that is too much, nothing more is written.
    """
    total = sum(record.nbytes for record in records)
    gone: list[Record] = []
    unwanted = (record for record in records if record.name not in wanted)
    for record in sorted(unwanted, key=lambda record: record.wanted_at):
        if total <= max_bytes:
            break
        gone.append(record)
        total -= record.nbytes
    return gone
