"""What warmd does with each of mlx-lm's cache classes: cut it by tokens, or take a snapshot of it.

A prompt cache is a list of caches, one a layer; a `CacheList` is several in one. The single ones are called
parts here. A part that keeps a row of keys and values for every token can be cut: any beginning of it is the
state of that beginning. Every other part (a window, a recurrent state, a class we do not know) is only right
at the position at which it was taken.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models.cache import (
    ArraysCache,
    BatchKVCache,
    CacheList,
    ChunkedKVCache,
    ConcatenateKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
)

STEP = 256
"""Room for new tokens comes in blocks of this many, as in mlx-lm's own caches."""


class Kind(Enum):
    """What can be done with a part."""

    ROWS = "cut at any token"
    SNAPSHOT = "kept as a snapshot at some positions"
    EMPTY = "nothing to keep"


Rows = tuple[Any, Any]
"""Keys and values of some tokens, on axis -2; each an array, or the three arrays of a quantised one."""


def parts(cache: Iterable[Any]) -> Iterator[Any]:
    """The single caches of a prompt cache, in order."""
    for layer in cache:
        if type(layer) is CacheList:
            yield from parts(layer.caches)
        else:
            yield layer


def regroup(cache: Iterable[Any], new_parts: Iterator[Any]) -> list[Any]:
    """A prompt cache shaped like `cache`, made of other parts."""
    return [
        CacheList(*regroup(layer.caches, new_parts)) if type(layer) is CacheList else next(new_parts)
        for layer in cache
    ]


def kind_of(part: Any, tokens: int) -> Kind:
    """What can be done with a part that has seen so many tokens."""
    if type(part) in _KNOWN and not arrays_of(part):
        return Kind.EMPTY
    if type(part) in _CUTTABLE and part.is_trimmable() and part.offset == tokens:
        lengths = {array.shape[-2] for _, array in tree_flatten((part.keys, part.values))}
        return Kind.ROWS if min(lengths) >= tokens else Kind.SNAPSHOT
    return Kind.SNAPSHOT


def cut_rows(part: Any, start: int, end: int) -> Rows:
    """The rows of some tokens of a part of kind ROWS, in buffers of their own (lazy: not computed yet)."""
    rows: Rows = tree_map(lambda array: _own(array[..., start:end, :]), (part.keys, part.values))
    return rows


def split_rows(rows: Rows, at: int) -> tuple[Rows, Rows]:
    """Rows before and from a position within them, in buffers of their own (lazy)."""
    upper = tree_map(lambda array: _own(array[..., :at, :]), rows)
    lower = tree_map(lambda array: _own(array[..., at:, :]), rows)
    return upper, lower


def rows_between(rows: Rows, start: int, end: int) -> Rows:
    """Some of the rows: all of them as they are, else in buffers of their own (lazy)."""
    if start == 0 and end == next(array.shape[-2] for _, array in tree_flatten(rows)):
        return rows
    some: Rows = tree_map(lambda array: _own(array[..., start:end, :]), rows)
    return some


def first_rows(rows: Rows, count: int) -> Rows:
    """The first rows, for now: a view, which pins all of them (lazy)."""
    first: Rows = tree_map(lambda array: array[..., :count, :], rows)
    return first


def join_rows(pieces: Sequence[Rows], spare: int = 0) -> Rows:
    """One after the other, with room for further tokens at the end (lazy)."""

    def join(*arrays: mx.array) -> mx.array:
        room = mx.zeros((*arrays[0].shape[:-2], spare, arrays[0].shape[-1]), arrays[0].dtype)
        return mx.concatenate([*arrays, room], axis=-2)

    joined: Rows = tree_map(join, *pieces)
    return joined


def make_part(like: Any, pieces: Sequence[Rows], tokens: int, spare: int) -> Any:
    """A part of a class of kind ROWS.

    Args:
        like: A part of that class.
        pieces: Its rows, one after the other.
        tokens: How many they are together.
        spare: Room to make for further ones.
    """
    if type(like) is ConcatenateKVCache:
        # It counts every row that is there, so there must be no others.
        return ConcatenateKVCache.from_state(join_rows(pieces))
    keys, values = join_rows(pieces, spare)
    if type(like) is QuantizedKVCache:
        state = (list(keys), list(values), tokens, like.group_size, like.bits)
        return QuantizedKVCache.from_state(state)
    return _FreshKVCache.from_state((keys, values, tokens))


def template_of(part: Any) -> Any:
    """A part of the same class and settings that holds nothing, to make others from."""
    part = copy.copy(part)
    part.keys = part.values = None
    return part


class _FreshKVCache(KVCache):  # type: ignore[misc] # mlx-lm has no type information
    """A `KVCache` of one request: nobody else has its buffers, so a batch of one may take them over.

    mlx-lm's own `merge` copies them once more, which doubles the time and memory that a hit costs.
    """

    @classmethod
    def merge(cls, caches: Sequence[Any]) -> Any:
        if len(caches) > 1 or type(caches[0]) is not cls:
            return KVCache.merge(caches)
        batch, (cache,) = BatchKVCache([0]), caches
        batch.keys, batch.values = cache.keys, cache.values
        batch.offset = batch.offset + cache.offset
        batch._idx = cache.offset
        return batch


# Not their subclasses: what a subclass keeps besides is anyone's guess.
_CUTTABLE = (KVCache, _FreshKVCache, QuantizedKVCache, ConcatenateKVCache)
_KNOWN = (*_CUTTABLE, RotatingKVCache, ArraysCache, ChunkedKVCache)


def snapshot(part: Any) -> Any:
    """A copy of a part that shares nothing with it and pins no larger buffer (lazy).

    Raises:
        Exception: Whatever an unknown class raises when it is copied.
    """
    part = copy.deepcopy(part)
    if type(part) is RotatingKVCache:
        _shrink(part)
    return _map_arrays(part, _own)


def _shrink(part: Any) -> None:
    """Leave out what has left a window: after a chunk it holds up to a chunk more than it looks at."""
    surplus = part.keys.shape[-2] - part.max_size if part.keys is not None else 0
    if surplus > 0 and part.keep == 0 and part._idx == part.keys.shape[-2]:
        part.keys, part.values = (array[..., surplus:, :] for array in (part.keys, part.values))
        part._idx = part.max_size


def hand_out(part: Any) -> Any:
    """A copy of a snapshot for a request, which shares buffers until its first write."""
    return copy.deepcopy(part)


def arrays_of(value: Any) -> list[mx.array]:
    """Every array inside a part, a snapshot or rows."""
    found: list[mx.array] = []

    def note(array: mx.array) -> mx.array:
        found.append(array)
        return array

    _map_arrays(value, note)
    return found


def nbytes(value: Any) -> int:
    """Bytes of every array inside."""
    return sum(array.nbytes for array in arrays_of(value))


def _own(array: mx.array) -> mx.array:
    """The same values in a buffer of their own. A slice would keep all of what it was cut from."""
    return mx.contiguous(array)


def _map_arrays(value: Any, function: Callable[[mx.array], mx.array]) -> Any:
    """Replace every array inside an object, in place where it is mutable."""
    if isinstance(value, mx.array):
        return function(value)
    if isinstance(value, list):
        value[:] = [_map_arrays(item, function) for item in value]
    elif isinstance(value, tuple):
        items = [_map_arrays(item, function) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    elif isinstance(value, dict):
        for key in value:
            value[key] = _map_arrays(value[key], function)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        _map_arrays(vars(value), function)
    return value


def positions(stops: Iterable[int], start: int, end: int) -> list[tuple[int, int]]:
    """The runs between stops from `start` to `end`."""
    edges = [start, *sorted(stop for stop in set(stops) if start < stop < end), end]
    return list(itertools.pairwise(edges)) if end > start else []
