"""One file of state: its name, and what it says of itself. Read without mlx."""

from __future__ import annotations

import hashlib
import json
import re
import struct
import sys
import zlib
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from warmd.disk.errors import DamagedError
from warmd.disk.identity import Identity, digest_of
from warmd.radix import Tokens, pack

FORMAT = 1
METADATA = "warmd"
"""Key of our JSON in the metadata of a safetensors file."""
TOKENS = "tokens"
"""Name of the tensor with the ids of the whole path, as 32-bit integers."""
_LONGEST_HEADER = 64 << 20
_END = ".safetensors"
_NAME = re.compile(
    r"(?P<whole>[0-9a-f]{16}-(0|[1-9]\d*)-[1-9]\d*-(?P<crc>[0-9a-f]{8}))"
    rf"(-(?P<usable>[1-9]\d{{0,17}}))?{re.escape(_END)}",
    re.ASCII,
)
"""Only as they are made, so that a file has the name that is made of what it says.

A last number is the position on the path behind which nothing of the file is used; see `shortened`.
"""


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of a file.

    Attributes:
        name: Of the file.
        above: Key (as `Prefix.key`) of the tokens before `start`.
        start: Tokens on the path before the file's own.
        own: The file's own ids; none where it holds a snapshot only.
        identity: What its state depends on.
        identity_digest: Names it.
        is_quantised: True for state as it is after mlx-lm quantised it.
        has_snapshot: True when state that cannot be cut is in it, as of its end.
        nbytes: Of the file.
        wanted_at: When an entry last wanted it, in seconds since the epoch: the file's time of change.
        model: For people.
        tokens_per_s: How fast such tokens were prefilled when it was written, or None.
    """

    name: str
    above: str
    start: int
    own: Tokens = field(repr=False)
    identity: Identity = field(repr=False)
    identity_digest: str
    is_quantised: bool
    has_snapshot: bool
    nbytes: int
    wanted_at: float
    model: str = ""
    tokens_per_s: float | None = None

    @property
    def end(self) -> int:
        """Tokens on the path up to and with its own."""
        return self.start + len(self.own)


def key_of(tokens: Tokens) -> str:
    """Names a path by its ids, as `Prefix.key` does."""
    return hashlib.sha256(tokens).hexdigest()


def name_of(tokens: Tokens, start: int, content: bytes) -> str:
    """The name of a file with such content, for the path of these tokens."""
    return f"{key_of(tokens)[:16]}-{start}-{len(tokens)}-{zlib.crc32(content):08x}{_END}"


def shortened(record: Record, end: int) -> Record:
    """The same file, once it has a name that says that nothing of it behind a position is to be used.

    Args:
        record: As it is now.
        end: On its path, and behind its start.
    """
    match = _NAME.fullmatch(record.name)
    whole = match["whole"] if match is not None else record.name.removesuffix(_END)
    own = record.own[: end - record.start]
    return replace(record, name=f"{whole}-{end}{_END}", own=own, has_snapshot=False)


def is_record_name(name: str) -> bool:
    """True for the names that files of state have: nothing else in a folder is touched."""
    return _NAME.fullmatch(name) is not None


def check_content(name: str, content: bytes) -> None:
    """Compare a file's content with the checksum in its name.

    Raises:
        DamagedError: It is other content.
    """
    match = _NAME.fullmatch(name)
    if match is None or int(match["crc"], 16) != zlib.crc32(content):
        raise DamagedError(name, "its content does not fit its checksum")


def read_record(path: Path, wanted_at: float) -> Record:
    """Read what a file says of itself; whether the rest is whole shows when all of it is read.

    Raises:
        DamagedError: It is no file of ours, or not all of it.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        size = path.stat().st_size
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else _LONGEST_HEADER + 1
        if length > min(_LONGEST_HEADER, size):
            raise DamagedError(path.name, "it is cut short")
        try:
            header = json.loads(file.read(length))
            return _record(path.name, header, size - 8 - length, file, wanted_at, size)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            raise DamagedError(path.name, "its header cannot be read") from None


def _record(
    name: str, header: Mapping[str, Any], data: int, file: Any, wanted_at: float, nbytes: int
) -> Record:
    text = header["__metadata__"][METADATA]
    if max(info["data_offsets"][1] for key, info in header.items() if key != "__metadata__") != data:
        raise DamagedError(name, "it is cut short")
    tokens = _read_tokens(header[TOKENS], file)
    return describe(name, text, tokens, wanted_at, nbytes)


def describe(name: str, text: str, tokens: Tokens, wanted_at: float, nbytes: int) -> Record:
    """A record from a file's metadata.

    Args:
        name: Of the file.
        text: Our JSON in it.
        tokens: The whole path.
        wanted_at: See `Record`.
        nbytes: Of the file.

    Raises:
        DamagedError, ValueError, KeyError, TypeError: It is not what we write.
    """
    said = json.loads(text)
    start = int(said["start"])
    if said["format"] != FORMAT:
        raise DamagedError(name, "it is of another version of warmd", is_hopeless=False)
    if not 0 <= start <= len(tokens) or not tokens:
        raise ValueError("the tokens are not laid out as ours")
    identity, digest = _identity(json.dumps(said["identity"], sort_keys=True))
    rate = said["tokens_per_s"]
    record = Record(
        name,
        key_of(tokens[:start]),
        start,
        tokens[start:],
        identity,
        digest,
        bool(said["is_quantised"]),
        said["snapshot"] is not None,
        nbytes,
        wanted_at,
        str(said["model"]),
        float(rate) if rate else None,
    )
    match = _NAME.fullmatch(name)
    if match is not None and match["usable"] is None:
        return record
    end = int(match["usable"]) if match is not None else 0
    if not start < end < len(tokens):
        raise ValueError("its name is none that we give")
    return shortened(record, end)


@lru_cache(maxsize=64)
def _identity(text: str) -> tuple[Identity, str]:
    """One object for all the files that say the same."""
    identity = json.loads(text)
    return identity, digest_of(identity)


def _read_tokens(info: Mapping[str, Any], file: Any) -> Tokens:
    start, end = info["data_offsets"]
    if info["dtype"] != "I32" or info["shape"] != [(end - start) // 4]:
        raise ValueError("the ids are not laid out as ours")
    file.seek(start, 1)
    ids = array("i")
    ids.frombytes(file.read(end - start))
    if sys.byteorder == "big":
        ids.byteswap()
    if len(ids) != (end - start) // 4:
        raise ValueError("ids are missing")
    return pack(ids)
