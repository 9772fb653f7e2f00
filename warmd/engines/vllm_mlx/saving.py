"""Has vllm-mlx write its cache to disk whole or not at all, so that a stop need not wait for it.

By itself it overwrites the files of the last time one by one, state before tokens, and trusts what it finds:
ended in between, the next start would take one prompt's state for another's.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

NEW = ".new"
OLD = ".old"

Save = Callable[[Any, str], bool]


@contextlib.contextmanager
def saved_whole(cache_type: Any) -> Iterator[None]:
    """Within the block, a cache's `save_to_disk` replaces what is there in one step.

    Args:
        cache_type: vllm-mlx's `MemoryAwarePrefixCache`.
    """
    save: Save = cache_type.save_to_disk
    cache_type.save_to_disk = lambda cache, folder: save_whole(cache, folder, save)
    try:
        yield
    finally:
        cache_type.save_to_disk = save


def save_whole(cache: Any, folder: str, save: Save) -> bool:
    """Save into a new folder, and put what is in it where it belongs.

    Args:
        cache: What is saved.
        folder: For this model; there is a folder in it for each version.
        save: vllm-mlx's own; True when there was something.
    """
    new, old = Path(folder) / NEW, Path(folder) / OLD
    # Of a save that was not let to its end.
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        is_saved = save(cache, str(new))
        for made in new.iterdir() if is_saved else ():
            _replace(Path(folder) / made.name, made, old)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return is_saved


def _replace(place: Path, made: Path, old: Path) -> None:
    if place.exists():
        place.rename(old)
    made.rename(place)
    shutil.rmtree(old, ignore_errors=True)
