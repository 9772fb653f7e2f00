"""What state depends on besides tokens, as flat JSON: only state of an equal identity is ever used."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Identity = Mapping[str, Any]
"""By field, such as `weights` or `mlx`. What differs is told by the field's name."""

_WHOLE = 16 << 20
_BLOCK = 64 << 10
_BLOCKS = 64
"""A larger file is known by its header and so many blocks: 100 GB of weights must not take minutes."""


def digest_of(identity: Identity) -> str:
    """Names an identity: SHA-256 (hex) of its canonical JSON."""
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def differences(wanted: Identity, found: Identity) -> list[str]:
    """The fields in which two identities differ, in order."""
    return sorted(key for key in {*wanted, *found} if wanted.get(key) != found.get(key))


Weights = list[list[Any]]
"""Of each file of a folder: name, bytes, digest."""


def weights_of(folder: Path) -> Weights:
    """Every file of a model's or an adapter's folder that its state depends on: name, bytes, digest.

    Raises:
        OSError: Something cannot be read.
    """
    # What mlx-lm loads, and nothing that lies beside it: macOS leaves files such as ._model.safetensors.
    patterns = ("model*.safetensors", "adapters.safetensors", "[!.]*.py")
    found = (path for pattern in patterns for path in folder.glob(pattern))
    paths = sorted(path for path in found if path.is_file())
    paths += [path for name in ("config.json", "adapter_config.json") if (path := folder / name).is_file()]
    return [[path.name, path.stat().st_size, _digest(path)] for path in paths]


def fingerprint_of(folders: Mapping[str, Path | None]) -> str | None:
    """`warmd.engines.base.Identity.fingerprint` of folders by role; None where one is missing or unreadable.

    Some megabytes of each file are read.
    """
    weights = {}
    for role, folder in folders.items():
        if folder is None:
            return None
        try:
            weights[role] = weights_of(folder)
        except OSError:
            return None
    return digest_of(weights)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in _blocks(file.fileno(), os.fstat(file.fileno()).st_size):
            digest.update(block)
    return digest.hexdigest()


def _blocks(file: int, size: int) -> Iterator[bytes]:
    """All of a small file; the beginning of a large one, its header, and blocks all over the rest."""
    if size <= _WHOLE:
        for start in range(0, size, _BLOCK):
            yield os.pread(file, _BLOCK, start)
        return
    # A safetensors file begins with its header's length.
    header = min(8 + int.from_bytes(os.pread(file, 8, 0), "little"), _WHOLE)
    yield os.pread(file, header, 0)
    rest = max(0, size - header - _BLOCK)
    for number in range(_BLOCKS):
        yield os.pread(file, _BLOCK, header + number * rest // (_BLOCKS - 1))
