"""Has vllm-mlx write its cache to disk whole or not at all, so that a stop need not wait for it.

By itself it overwrites the files of the last time one by one, state before tokens, and trusts what it finds:
ended in between, the next start would take one prompt's state for another's.

A folder cannot take the place of another in one step. So the old one is first moved aside, under its own
name: where a process ends between the two moves, the next one finds it there and puts it back.
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
Load = Callable[[Any, str], int]


@contextlib.contextmanager
def saved_whole(cache_type: Any) -> Iterator[None]:
    """Within the block, what a cache saves takes the place of what was there at once, and is found again.

    Args:
        cache_type: vllm-mlx's `MemoryAwarePrefixCache`.
    """
    save: Save = cache_type.save_to_disk
    load: Load = cache_type.load_from_disk
    cache_type.save_to_disk = lambda cache, folder: save_whole(cache, folder, save)
    cache_type.load_from_disk = lambda cache, folder: load_whole(cache, folder, load)
    try:
        yield
    finally:
        cache_type.save_to_disk, cache_type.load_from_disk = save, load


def save_whole(cache: Any, folder: str, save: Save) -> bool:
    """Save into a new folder, and put what is in it where it belongs.

    Args:
        cache: What is saved.
        folder: For this model; there is a folder in it for each version.
        save: vllm-mlx's own; True when there was something.
    """
    whole, new, old = Path(folder), Path(folder) / NEW, Path(folder) / OLD
    # Of a save that was not let to its end.
    _put_back(whole)
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        is_saved = save(cache, str(new))
        for made in new.iterdir() if is_saved else ():
            _replace(whole / made.name, made, old / made.name)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return is_saved


def load_whole(cache: Any, folder: str, load: Load) -> int:
    """Load what was saved last, wherever a save that was not let to its end has left it.

    Args:
        cache: Takes it.
        folder: As for `save_whole`.
        load: vllm-mlx's own; returns how much there was.
    """
    # Where it cannot be put back it is as if it were not there, which vllm-mlx knows how to take.
    with contextlib.suppress(OSError):
        _put_back(Path(folder))
    return load(cache, folder)


def _replace(place: Path, made: Path, aside: Path) -> None:
    if place.exists():
        aside.parent.mkdir(exist_ok=True)
        place.rename(aside)
    made.rename(place)
    shutil.rmtree(aside.parent, ignore_errors=True)


def _put_back(folder: Path) -> None:
    for aside in list((folder / OLD).glob("*")):
        if not (folder / aside.name).exists():
            aside.rename(folder / aside.name)
