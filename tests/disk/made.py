"""Files of state made without mlx: their state is filler, everything else is as in real ones."""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from warmd.disk.files import Files
from warmd.disk.record import FORMAT, METADATA, TOKENS, Record, describe, name_of
from warmd.disk.tell import Tell
from warmd.disk.writer import Piece
from warmd.events import Event
from warmd.radix import pack

IDENTITY: dict[str, Any] = {"model": [["w.safetensors", 5, "ab"]], "mlx": "0.32"}


def make_piece(
    tokens: Sequence[int],
    start: int = 0,
    *,
    size: int = 100,
    has_snapshot: bool = False,
    is_quantised: bool = False,
    now: float = 1e9,
    tokens_per_s: float | None = None,
    identity: dict[str, Any] = IDENTITY,
) -> Piece:
    """The file of a path from `start` on, with so many bytes of filler."""
    text = json.dumps(
        {
            "format": FORMAT,
            "start": start,
            "is_quantised": is_quantised,
            "identity": identity,
            "snapshot": [{}] if has_snapshot else None,
            "model": "toy",
            "tokens_per_s": tokens_per_s,
        }
    )
    ids = array("i", tokens).tobytes()
    header = json.dumps(
        {
            "__metadata__": {METADATA: text},
            "filler": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]},
            TOKENS: {"dtype": "I32", "shape": [len(tokens)], "data_offsets": [size, size + len(ids)]},
        }
    ).encode()
    content = struct.pack("<Q", len(header)) + header + bytes(range(256)) * (size // 256 + 1)
    content = content[: 8 + len(header) + size] + ids
    path = pack(tokens)
    name = name_of(path, start, content)
    return Piece(describe(name, text, path, now, len(content)), content)


def make_record(tokens: Sequence[int], start: int = 0, **more: Any) -> Record:
    """What is known of such a file."""
    return make_piece(tokens, start, **more).record


def put(files: Files, piece: Piece) -> Record:
    """Write a file."""
    files.make_folder()
    files.write(piece.record.name, piece.content)
    files.touch(piece.record.name, piece.record.wanted_at)
    return piece.record


class Told:
    """Receives events.

    Attributes:
        events: All so far.
        tell: What makes them.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.tell = Tell(self.events.append)

    def names(self) -> list[str]:
        """Of all events, in order."""
        return [event.name for event in self.events]

    def fields(self, name: str) -> list[dict[str, Any]]:
        """Of every event with a name."""
        return [dict(event.fields) for event in self.events if event.name == name]


def feed(pieces: Sequence[Piece]) -> Callable[[], Piece | None]:
    """Hands out pieces one after the other, then None."""
    left = list(pieces)
    return lambda: left.pop(0) if left else None
