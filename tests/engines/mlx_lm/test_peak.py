"""What warming really takes at its peak, by mlx's own count, where layers are wide for their state."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import mlx_lm
import pytest

from tests.engines.mlx_lm.warming import ids, make_provider
from tests.toys import ARCHITECTURES, make_model
from warmd.engines.base import NoRoomError, Prefix
from warmd.engines.mlx_lm.guard import PROBE_TOKENS, Guard
from warmd.engines.mlx_lm.measure import measure, trace
from warmd.engines.mlx_lm.prefill import Prefill
from warmd.engines.mlx_lm.store import WarmStore
from warmd.memory.readings import Limit, Reading

CHUNK, TOKENS = 256, 400
WIDE = 3072


class Arrays:
    """A meter of mlx's arrays alone: what else the process takes differs from run to run."""

    def read(self) -> Reading:
        return Reading(
            active=mx.get_active_memory(),
            pool=mx.get_cache_memory(),
            footprint=0,
            physical=1 << 40,
            others=0,
            recommended=None,
            pressure=1,
        )


class Warming:
    """Warms prefixes of one model from nothing, and sees what that takes.

    Attributes:
        guard: Asked before each chunk.
        ends: Where the chunks of the last warming ended.
        peak: Bytes that were active at its worst moment, over those before it.
    """

    def __init__(self, model: Any) -> None:
        self._provider = make_provider(model)
        self.guard = Guard(Limit(None, 0), Arrays())
        self.guard.model_loaded(measure(trace(model), CHUNK, self._provider.cli_args))
        self.ends: list[int] = []
        self.peak = 0

    def warm(self, room: int = 1 << 40) -> bool:
        """Warm a prefix with so many bytes of room; False when there turns out to be too little."""
        mx.clear_cache()
        before = mx.get_active_memory()
        self.guard.limit = Limit(before + room, 0)
        self.ends, self.peak = [], 0
        store, prefix = WarmStore(), Prefix(tuple(ids(TOKENS)))
        store.declare([prefix])
        prefill = Prefill(prefix, store, self._provider, CHUNK, self.ends.append, self.guard)
        is_warm = False
        while not is_warm:
            mx.reset_peak_memory()
            try:
                is_warm = prefill.step() is not None
            except NoRoomError:
                break
            finally:
                # The guard begins to count anew with each chunk.
                self.peak = max(self.peak, mx.get_peak_memory() - before)
        return is_warm

    @property
    def largest(self) -> int:
        """Tokens of the largest chunk."""
        return max(end - begin for begin, end in zip([0, *self.ends], self.ends, strict=False))


@pytest.fixture(scope="module", params=ARCHITECTURES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("wide") / "model"
    return mlx_lm.load(str(make_model(folder, architecture=request.param, intermediate_size=WIDE)))[0]


@pytest.mark.promise(4)
def test_the_real_peak_of_warming_stays_under_a_limit_that_whole_chunks_would_break(model: Any) -> None:
    free = Warming(model)
    assert free.warm()
    assert (free.ends[0], free.largest) == (PROBE_TOKENS, CHUNK)
    for share in (0.25, 0.9):
        warming, room = Warming(model), int(free.peak * share)
        warming.warm(room)
        assert 0 < warming.peak <= room
        assert warming.largest < CHUNK
    # What has seen whole chunks does not even begin.
    assert not free.warm(room)
    assert free.ends == []


@pytest.mark.promise(4)
def test_with_half_as_much_room_again_as_it_takes_the_real_peak_is_that_of_whole_chunks(model: Any) -> None:
    warming = Warming(model)
    assert warming.warm()
    room = int(1.5 * warming.peak)
    assert warming.warm(room)
    assert (warming.largest, room // 2 < warming.peak <= room) == (CHUNK, True)
