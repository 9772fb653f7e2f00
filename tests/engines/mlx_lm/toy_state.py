"""A model without weights, whose caches can be checked: all they hold is a function of the tokens seen.

Each part of a cache goes on from what it holds itself, so that state that is wrong anywhere stays wrong, and
is compared with what the tokens call for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    ConcatenateKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
)

from warmd.engines.mlx_lm import layers
from warmd.engines.mlx_lm.store import Quantising

Array = npt.NDArray[np.float32]

MODULUS = 65521
WINDOW = 8
"""Tokens of a window, and of a chunk."""
SINKS = 2
"""First tokens that a window never loses."""
HEADS = 2
WIDTH = 32
"""Of a row: one group of mlx's quantisation."""


# --- what the tokens call for ----------------------------------------------------------------------


@lru_cache(maxsize=4096)
def hashes(tokens: tuple[int, ...]) -> tuple[int, ...]:
    """A number for each beginning, 0 for the empty one."""
    found = [0]
    for token in tokens:
        found.append((found[-1] * 31 + token + 1) % MODULUS)
    return tuple(found)


@lru_cache(maxsize=4096)
def rows_for(tokens: tuple[int, ...], which: int) -> Array:
    """The keys (0) or values (1) of all tokens, shaped like a cache's.

    Numbers of a byte in rows that hold both 0 and 255 survive 8-bit quantisation exactly.
    """
    rows = np.zeros((1, HEADS, len(tokens), WIDTH), np.float32)
    _write(rows, np.array(hashes(tokens)[1:]), 0, which)
    rows.flags.writeable = False
    return rows


def _write(rows: Array, now: npt.NDArray[np.int64], before: int, which: int) -> None:
    """Rows that tell all tokens up to theirs (as a number), how many these are, their head, and which."""
    count = before + 1 + np.arange(len(now))
    rows[..., 1] = 255
    rows[..., 2], rows[..., 3] = now & 255, now >> 8
    rows[..., 4], rows[..., 5] = count & 255, count >> 8
    rows[..., 6] = which
    rows[..., 7] = np.arange(HEADS)[:, None]


# --- what a part holds, and what it adds -----------------------------------------------------------


class Tally:
    """A cache class that nobody knows: arrays in places where caches do not have them."""

    def __init__(self) -> None:
        self.totals: dict[str, Any] = {}
        self.seen: list[int] = []
        self.last: tuple[Any, ...] = (None,)

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        return layers.nbytes(self)

    def update(self, tokens: Sequence[int]) -> None:
        """See further tokens."""
        before = int(self.totals["hash"].item()) if self.totals else 0
        now = _further(before, tokens)[-1]
        self.totals = {"hash": mx.array(now), "more": [mx.array([now, now]), "text"]}
        self.seen.extend(tokens)
        self.last = (mx.array(tokens[-1]),)


class OddKVCache(KVCache):  # type: ignore[misc] # mlx-lm has no type information
    """A subclass, which may keep whatever it likes besides: here, the number of its updates' tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[int] = []

    def update_and_fetch(self, keys: Any, values: Any) -> Any:
        self.counts.append(keys.shape[2])
        return super().update_and_fetch(keys, values)


class NoCache:
    """Holds nothing at all, like the caches of layers that share another layer's."""

    nbytes = 0


def unused() -> KVCache:
    """A cache of a layer that never fills it."""
    part = KVCache()
    part.is_unused = True
    return part


def _is_unused(part: Any) -> bool:
    return isinstance(part, NoCache) or getattr(part, "is_unused", False)


def _further(before: int, tokens: Sequence[int]) -> list[int]:
    found = []
    for token in tokens:
        before = (before * 31 + token + 1) % MODULUS
        found.append(before)
    return found


def _plain(array: Any) -> Array:
    """Values of rows, dequantised where they are quantised."""
    if isinstance(array, (list, tuple)):
        weights, scales, biases = array
        array = mx.dequantize(weights, scales, biases, WIDTH, 8)
    return np.array(array)


def _last_row(part: Any) -> Array | None:
    """What a part with rows holds of its last token."""
    if part.keys is None:
        return None
    at = part.offset
    if type(part) is RotatingKVCache:
        at = part._idx
    elif type(part) is ChunkedKVCache:
        at -= part.start_position
    is_quantised = type(part) is QuantizedKVCache
    rows = [array[..., at - 1 : at, :] for array in (part.keys if is_quantised else [part.keys])]
    row: Array = _plain(rows if is_quantised else rows[0])[0, 0, 0]
    return row


def _append_rows(part: Any, tokens: Sequence[int]) -> None:
    if type(part) is ChunkedKVCache:
        part.maybe_trim_front()
    last = _last_row(part)
    before, count = 0, 0
    if last is not None:
        before, count = (int(last[at]) + (int(last[at + 1]) << 8) for at in (2, 4))
    now = np.array(_further(before, tokens))
    rows = np.zeros((2, 1, HEADS, len(tokens), WIDTH), np.float32)
    for which in range(2):
        _write(rows[which], now, count, which)
    part.update_and_fetch(mx.array(rows[0]), mx.array(rows[1]))


def _append_state(part: Any, tokens: Sequence[int]) -> None:
    """A recurrent state, and (as of a convolution) the end of a longer row of inputs, cut out of it."""
    before = 0 if part[0] is None else int(part[0][0, 0].item())
    now = _further(before, tokens)
    part[0] = mx.array([[now[-1], HEADS]], mx.float32)
    inputs = mx.zeros((1, 3, 2)) if part[1] is None else part[1]
    added = mx.array([[[number, number % 7] for number in now]], mx.float32)
    part[1] = mx.concatenate([inputs, added], axis=1)[:, -3:, :]


def append(part: Any, tokens: Sequence[int]) -> None:
    """What a layer does to its cache."""
    if _is_unused(part):
        return
    if isinstance(part, Tally):
        part.update(tokens)
    elif type(part) is ArraysCache:
        _append_state(part, tokens)
    else:
        _append_rows(part, tokens)


# --- the check -------------------------------------------------------------------------------------


def assert_rows(rows: Any, tokens: tuple[int, ...], start: int, end: int) -> None:
    """Keys and values are exactly those of the tokens from `start` to `end`."""
    for which, found in enumerate(rows):
        expected = rows_for(tokens[:end], which)[..., start:end, :]
        plain = _plain(found)
        assert plain.shape == expected.shape, f"{plain.shape[2]} rows for tokens {start} to {end}"
        assert np.array_equal(plain, expected), f"rows of tokens {start} to {end} are wrong"


def _assert_window(part: RotatingKVCache, tokens: tuple[int, ...]) -> None:
    count = len(tokens)
    assert (part.offset, part.max_size, part.keep) == (count, WINDOW, SINKS)
    for which, array in enumerate((part.keys, part.values)):
        found = np.array(part._temporal_order(array))
        kept = found.shape[2]
        assert min(count, WINDOW) <= kept <= count
        expected = rows_for(tokens, which)
        if kept < count:
            recent = expected[..., count - (kept - SINKS) :, :]
            expected = np.concatenate([expected[..., :SINKS, :], recent], axis=2)
        assert np.array_equal(found, expected), "a window holds other rows"


def _assert_state(part: ArraysCache, tokens: tuple[int, ...]) -> None:
    now = hashes(tokens)
    assert part[0].tolist() == [[now[-1], HEADS]], "a recurrent state is that of other tokens"
    recent = [0, 0, 0, *now[1:]][-3:]
    assert part[1].tolist() == [[[number, number % 7] for number in recent]]


def _assert_tally(part: Tally, tokens: tuple[int, ...]) -> None:
    now = hashes(tokens)[-1]
    assert part.seen == list(tokens)
    assert part.totals["hash"].item() == now
    assert part.totals["more"][0].tolist() == [now, now]
    assert part.totals["more"][1] == "text"
    assert part.last[0].item() == tokens[-1]


def assert_part(part: Any, tokens: tuple[int, ...]) -> None:
    """A part holds the state of exactly these tokens (at least one)."""
    if _is_unused(part):
        assert not layers.arrays_of(part)
    elif isinstance(part, Tally):
        _assert_tally(part, tokens)
    elif type(part) is ArraysCache:
        _assert_state(part, tokens)
    elif type(part) is RotatingKVCache:
        _assert_window(part, tokens)
    elif type(part) is ChunkedKVCache:
        start = part.start_position
        assert part.offset == len(tokens)
        assert len(tokens) - start >= min(len(tokens), WINDOW)
        assert_rows(part.keys_and_values(), tokens, start, len(tokens))
    else:
        assert part.offset == len(tokens)
        if type(part) is OddKVCache:
            assert sum(part.counts) == len(tokens)
        assert_rows(part.keys_and_values(), tokens, 0, len(tokens))


def assert_state(cache: Sequence[Any], tokens: tuple[int, ...]) -> None:
    """A prompt cache holds the state of exactly these tokens (at least one)."""
    for part in layers.parts(cache):
        assert_part(part, tokens)


# --- models ----------------------------------------------------------------------------------------


class ToyModel:
    """What a prefill needs of a model.

    Attributes:
        layers: As many as its cache has.
        computed: Tokens that it was asked to compute so far.
    """

    def __init__(self, make_cache: Callable[[], list[Any]]) -> None:
        self.make_cache = make_cache
        self.layers = self.make_cache()
        self.computed = 0

    def __call__(self, tokens: mx.array, cache: list[Any]) -> None:
        """Append tokens to a prompt cache of this model."""
        ids: Any = tokens[0].tolist()
        self.computed += len(ids)
        for part in layers.parts(cache):
            append(part, ids)


@dataclass(frozen=True)
class Mix:
    """Caches that a model may have together.

    Attributes:
        make_cache: A prompt cache of the model.
        draft: The same of its draft model.
        args: Of the server.
        quantised_from: As warmd finds it out for these arguments.
    """

    make_cache: Callable[[], list[Any]]
    draft: Callable[[], list[Any]] | None = None
    args: dict[str, Any] = field(default_factory=dict)
    quantised_from: int | None = None

    @property
    def quantising(self) -> Quantising | None:
        """The same, as the store takes it."""
        if self.quantised_from is None:
            return None
        found = Quantising(self.args["prefill_step_size"], self.args["quantized_kv_start"])
        assert found.first == self.quantised_from
        return found

    def is_cuttable(self) -> bool:
        """True where every part keeps a row for every token."""
        cache = [*self.make_cache(), *(self.draft() if self.draft else [])]
        kinds = {type(part) for part in layers.parts(cache)}
        return kinds <= {KVCache, ConcatenateKVCache}

    def assert_shape(self, cache: Sequence[Any], tokens: int) -> None:
        """A prompt cache has the parts of one that the models make, quantised where the server does it."""
        expected = [*self.make_cache(), *(self.draft() if self.draft else [])]
        is_quantised = self.quantised_from is not None and tokens >= self.quantised_from
        for layer, own in zip(cache, expected, strict=True):
            assert (type(layer) is QuantizedKVCache) == (is_quantised and type(own) is KVCache)
        for part, own in zip(layers.parts(cache), layers.parts(expected), strict=True):
            is_kv = type(own) is KVCache and type(part) in (QuantizedKVCache, layers._FreshKVCache)
            assert type(part) is type(own) or is_kv

    def append(self, cache: list[Any], tokens: Sequence[int]) -> None:
        """Compute tokens on top of a prompt cache, of both models."""
        for part in layers.parts(cache):
            append(part, tokens)


_QUANTISED = {"prefill_step_size": 8, "kv_bits": 8, "kv_group_size": WIDTH, "quantized_kv_start": 20}

MIXES: dict[str, Mix] = {
    "cuttable": Mix(lambda: [KVCache(), CacheList(ConcatenateKVCache(), CacheList(KVCache())), unused()]),
    "hybrid": Mix(lambda: [ArraysCache(2), KVCache()]),
    "window": Mix(lambda: [RotatingKVCache(WINDOW, SINKS), KVCache()]),
    "list": Mix(lambda: [CacheList(KVCache(), ArraysCache(2)), KVCache()]),
    "chunked": Mix(lambda: [ChunkedKVCache(WINDOW), KVCache()]),
    "unknown": Mix(lambda: [KVCache(), Tally(), OddKVCache(), NoCache()]),
    "no rows": Mix(lambda: [ArraysCache(2), RotatingKVCache(WINDOW, SINKS)]),
    "draft": Mix(lambda: [KVCache(), KVCache()], draft=lambda: [ArraysCache(2)]),
    "quantised": Mix(
        lambda: [KVCache(), ConcatenateKVCache(), CacheList(KVCache())], args=_QUANTISED, quantised_from=24
    ),
    "quantised hybrid": Mix(lambda: [KVCache(), ArraysCache(2)], args=_QUANTISED, quantised_from=24),
}
