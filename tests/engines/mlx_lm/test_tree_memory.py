"""What the warm store takes, and gives back at once: bytes, buffers, nodes; also when something fails."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache

from tests.engines.mlx_lm.toy_state import MIXES, ToyModel, assert_state
from tests.engines.mlx_lm.warming import ids, make_provider, warm
from warmd.engines.base import Prefix
from warmd.engines.mlx_lm import layers
from warmd.engines.mlx_lm.desk import Desk, Job
from warmd.engines.mlx_lm.layers import Kind
from warmd.engines.mlx_lm.prefill import Prefill
from warmd.engines.mlx_lm.runs import join
from warmd.engines.mlx_lm.state import Layout, Run, Span
from warmd.engines.mlx_lm.store import Checkpoints, WarmStore

LARGE = 1 << 30


class Bench:
    """A store with a model to fill it.

    Args:
        name: Of a mix of caches.
        spacing: Tokens between checkpoints.
        max_bytes: Of checkpoints.
    """

    def __init__(self, name: str, spacing: int = 16, max_bytes: int = LARGE) -> None:
        mix = MIXES[name]
        self.store = WarmStore(Checkpoints(spacing, max_bytes), mix.quantising)
        draft = ToyModel(mix.draft) if mix.draft else None
        self.provider = make_provider(ToyModel(mix.make_cache), draft, **mix.args)

    def warm(self, *prefixes: Sequence[int]) -> int:
        """Prefill them; returns how many tokens were new."""
        return sum(warm(self.store, self.provider, tokens, chunk=9).new_tokens for tokens in prefixes)

    def declare(self, *prefixes: Sequence[int]) -> None:
        self.store.declare([Prefix(tuple(tokens)) for tokens in prefixes])

    def drop(self, *prefixes: Sequence[int]) -> None:
        self.store.drop([Prefix(tuple(tokens)).key for tokens in prefixes])

    def begun(self, tokens: Sequence[int], steps: int) -> Prefill:
        """A warming that is not at its end yet."""
        prefill = Prefill(Prefix(tuple(tokens)), self.store, self.provider, 9, lambda done: None)
        for _ in range(steps):
            assert prefill.step() is None
        return prefill

    def matched(self, tokens: Sequence[int]) -> int:
        """How many of a request's tokens it would not have to compute; their state is right."""
        found = self.store.match(list(tokens))
        if found is None:
            return 0
        assert_state(found.copy(3), tuple(tokens[: found.length]))
        return found.length

    def spans(self) -> list[Span]:
        return [node.payload for tree in self.store._trees.values() for node in tree.nodes()]

    def nodes(self) -> int:
        return len(self.spans())

    def slack(self) -> int:
        """What mlx may pin besides: it shares a buffer rather than copy all but 16 KiB of it."""
        return sum(len(layers.arrays_of([span.rows, span.snapshot])) for span in self.spans()) * 16384


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What is freed is freed by itself, at once: Python's collector may come much later."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def active() -> int:
    """Bytes of mlx's arrays that are alive."""
    mx.clear_cache()
    return int(mx.get_active_memory())


def documents(count: int) -> list[list[int]]:
    """Prefixes that part in different places, some of them early."""
    return [ids(60)[: 20 + index] + ids(40, seed=index + 2)[: 40 - index] for index in range(count)]


every_mix = pytest.mark.parametrize("name", MIXES)
"""Each mix of caches in turn."""

hybrids = pytest.mark.parametrize("name", [name for name, mix in MIXES.items() if not mix.is_cuttable()])
"""Those whose state cannot be cut."""


# --- given back at once ----------------------------------------------------------------------------


@every_mix
@pytest.mark.usefixtures("no_collector")
def test_dropping_all_gives_every_byte_back_at_once(name: str) -> None:
    bench, prefixes = Bench(name), documents(20)
    before = active()
    bench.declare(*prefixes)
    bench.warm(*prefixes)
    assert active() - before >= bench.store.warm_bytes > 0
    bench.declare()
    bench.drop(*prefixes)
    assert bench.store.warm_bytes == 0
    assert active() == before


@every_mix
@pytest.mark.parametrize("how", ["clear", "reset"])
@pytest.mark.usefixtures("no_collector")
def test_clearing_gives_every_byte_back_at_once(name: str, how: str) -> None:
    """The next model is loaded right after."""
    bench, prefixes = Bench(name), documents(5)
    before = active()
    bench.warm(*prefixes)
    getattr(bench.store, how)()
    assert bench.store.warm_bytes == 0
    assert active() == before


@every_mix
@pytest.mark.usefixtures("no_collector")
def test_a_cancelled_warming_that_nothing_can_use_gives_every_byte_back(name: str) -> None:
    bench = Bench(name)
    before = active()
    prefill = bench.begun(ids(60), 4)
    assert active() > before
    prefill.abandon()
    assert bench.store.warm_bytes == 0
    assert active() == before


@every_mix
@pytest.mark.usefixtures("no_collector")
def test_a_finished_or_cancelled_warming_holds_nothing_itself(name: str) -> None:
    bench = Bench(name)
    before = active()
    finished, cancelled = bench.begun(ids(60), 3), bench.begun(ids(60, seed=2), 3)
    while finished.step() is None:
        pass
    cancelled.abandon()
    bench.drop(ids(60))
    assert active() == before


@every_mix
@pytest.mark.usefixtures("no_collector")
def test_copies_and_what_is_computed_on_them_leave_nothing_behind(name: str) -> None:
    bench, mix = Bench(name), MIXES[name]
    bench.warm(*documents(3))
    before = active()
    for tokens in documents(3):
        found = bench.store.match([*tokens, 1])
        assert found is not None
        cache, matched = found.copy(5), (*tokens, 1)[: found.length]
        mix.append(cache, [1, 2, 3])
        assert_state(cache, (*matched, 1, 2, 3))
        del cache, found
    assert active() == before


@every_mix
@pytest.mark.usefixtures("no_collector")
def test_nothing_piles_up_over_many_rounds(name: str) -> None:
    bench, prefixes = Bench(name), documents(6)
    before, sizes = active(), set()
    for _ in range(6):
        bench.declare(*prefixes)
        bench.warm(*prefixes)
        bench.begun(ids(60), 4).abandon()
        bench.declare(*prefixes[:3])
        bench.drop(*prefixes[3:])
        sizes.add((bench.store.warm_bytes, bench.nodes()))
        assert bench.store.warm_bytes <= active() - before <= bench.store.warm_bytes + bench.slack()
        bench.declare()
        bench.drop(*prefixes)
        assert active() == before
    assert len(sizes) == 1


@pytest.mark.usefixtures("no_collector")
def test_what_is_left_of_a_long_prefix_pins_no_more_than_the_store_says() -> None:
    bench, tokens = Bench("cuttable"), ids(2000)
    before = active()
    bench.declare(tokens)
    bench.warm(tokens)
    bench.declare(tokens[:10])
    bench.drop(tokens)
    assert bench.matched(tokens) == 10
    assert active() - before <= bench.store.warm_bytes + bench.slack()


# --- nodes -----------------------------------------------------------------------------------------


@every_mix
def test_edits_at_the_end_of_a_long_entry_leave_no_trace(name: str) -> None:
    bench, base = Bench(name, spacing=100), ids(500)
    old = base
    bench.declare(old)
    bench.warm(old)
    first = bench.nodes()
    # Each of the 13 places of the one kind beside each of the 7 of the other.
    for edit in range(13 * 7):
        # Up and down the last tokens, so that the place of the edit moves both ways.
        at = 490 - edit % 13 if edit % 2 else 480 + edit % 7
        new = base[:at] + ids(10 + edit % 5, seed=edit + 2)
        bench.declare(new)
        reused = len(new) - bench.warm(new)
        assert reused >= (400 if not MIXES[name].is_cuttable() else 470)
        bench.drop(old)
        assert bench.nodes() <= first + 4
        old = new
    assert bench.matched([*old, 1]) == len(old)


@every_mix
def test_an_entry_that_grows_a_token_at_a_time_stays_a_few_nodes(name: str) -> None:
    bench, tokens = Bench(name, spacing=100), ids(300)
    for size in range(100, 300):
        bench.declare(tokens[:size])
        bench.warm(tokens[:size])
        bench.drop(tokens[: size - 1])
        assert bench.nodes() <= 7


@every_mix
def test_a_warming_that_is_cancelled_after_every_step_stays_a_few_nodes(name: str) -> None:
    bench, tokens = Bench(name, spacing=100), ids(300)
    bench.declare(tokens)
    for _ in range(30):
        bench.begun(tokens, 1).abandon()
        assert bench.nodes() <= 7
    assert bench.warm(tokens) < 80
    assert bench.nodes() <= 7


@hybrids
def test_a_place_where_nothing_can_start_is_not_kept(name: str) -> None:
    bench, tokens = Bench(name), ids(60)
    others = [[*tokens[:15], number] for number in (1, 2)]
    bench.declare(*others)
    bench.warm(*others)
    bench.declare(tokens)
    bench.drop(*others)
    assert bench.store.warm_bytes == 0


@hybrids
def test_what_a_prefix_that_is_not_warm_yet_would_go_on_from_stays_when_others_go(name: str) -> None:
    bench, tokens = Bench(name, spacing=100), ids(61)
    shared = max(40, MIXES[name].quantised_from or 0)
    other = tokens[:shared] + ids(20, seed=2)
    bench.declare(tokens, other)
    bench.warm(tokens)
    bench.declare(other)
    bench.drop(tokens)
    assert bench.matched(other) == shared
    assert bench.warm(other) == 20


@hybrids
def test_the_last_checkpoint_before_an_edit_serves_what_is_to_be_warmed(name: str) -> None:
    bench, tokens = Bench(name, spacing=30, max_bytes=0), ids(100)
    bench.store.checkpoints = Checkpoints(30, LARGE)
    bench.declare(tokens)
    bench.warm(tokens)
    edited = tokens[:70] + ids(20, seed=2)
    bench.declare(edited)
    bench.store.free_checkpoints()
    assert bench.matched(edited) == 60
    assert bench.store.checkpoint_bytes == 0
    bench.warm(edited)
    bench.drop(tokens)
    assert bench.store.free_checkpoints()
    assert bench.matched(edited[:-1]) == 0


# --- checkpoints -----------------------------------------------------------------------------------


@hybrids
def test_a_held_prefix_on_another_s_way_is_no_checkpoint(name: str) -> None:
    bench, tokens = Bench(name, max_bytes=0), ids(60)
    bench.declare(tokens, tokens[:30], tokens[:10])
    bench.warm(tokens, tokens[:30], tokens[:10])
    quantised_from = MIXES[name].quantised_from or 0
    for size in (10, 30):
        assert bench.matched([*tokens[:size], 1]) == size
        if size >= quantised_from:
            assert bench.matched(tokens[: size + 5]) == size


@hybrids
def test_checkpoints_stay_in_their_bounds_when_branches_become_some(name: str) -> None:
    bench, prefixes = Bench(name, spacing=8, max_bytes=0), documents(6)
    bench.declare(*prefixes)
    bench.warm(*prefixes)
    bench.declare(prefixes[0])
    bench.drop(*prefixes[1:])
    assert bench.store.checkpoint_bytes == 0
    assert bench.matched([*prefixes[0], 1]) == 60


def test_checkpoints_that_fit_stay_and_leave_no_large_gap() -> None:
    bench, tokens = Bench("hybrid", spacing=10), ids(100)
    bench.declare(tokens)
    bench.warm(tokens)
    size = bench.store.checkpoint_bytes // 9
    bench.store.checkpoints = Checkpoints(10, 4 * size)
    bench.declare(tokens, ids(60, seed=2))
    assert bench.store.checkpoint_bytes == 4 * size
    assert all(bench.matched([*tokens[:end], 1]) >= end - 30 for end in range(30, 101))


# --- quantised state -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["quantised", "quantised hybrid"])
def test_quantised_state_that_is_too_short_to_serve_is_not_kept(name: str) -> None:
    bench, tokens = Bench(name), ids(60)
    bench.declare(tokens)
    bench.warm(tokens)
    bench.drop(tokens)
    bench.declare(tokens[:23] + ids(9, seed=2))
    assert bench.store.warm_bytes == 0


def test_no_snapshot_is_kept_where_quantised_state_is_too_short_to_serve() -> None:
    bench, tokens = Bench("quantised hybrid", spacing=8), ids(60)
    bench.declare(tokens)
    bench.warm(tokens)
    ends = [node.end for tree in bench.store._trees.values() for node in tree.nodes()]
    assert sorted(ends) == [24, 32, 40, 48, 56, 60]


# --- failures --------------------------------------------------------------------------------------


class OutOfMemoryError(Exception):
    """What evaluation raises here."""


@contextlib.contextmanager
def failing_after(calls: int) -> Iterator[None]:
    """The store's evaluations fail after so many, as they do where memory is short."""
    evaluate, left = mx.eval, [calls]

    def eval_or_fail(*arrays: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OutOfMemoryError
        evaluate(*arrays)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mx, "eval", eval_or_fail)
        yield


def assert_right(bench: Bench, prefixes: Sequence[Sequence[int]]) -> None:
    """Whatever is served is right, what is held is served, and what is gone is free."""
    held = bench.store.held
    for tokens in prefixes:
        matched = bench.matched([*tokens, 1])
        if Prefix(tuple(tokens)).key in held:
            assert matched == len(tokens)
    assert (bench.store.warm_bytes > 0) == (bench.nodes() > 0)


def prepared(name: str) -> tuple[Bench, list[list[int]]]:
    """A store with something that any change makes it cut, or join."""
    bench, prefixes = Bench(name), [ids(60), ids(60)[:40] + ids(20, seed=2), ids(60)[:25] + ids(9, seed=3)]
    bench.declare(*prefixes)
    bench.warm(*prefixes)
    return bench, prefixes


@every_mix
@pytest.mark.usefixtures("no_collector")
def test_a_failure_in_the_midst_of_dropping_or_declaring_leaves_nothing_wrong(name: str) -> None:
    before = active()
    for calls in range(6):
        bench, prefixes = prepared(name)
        with failing_after(calls), contextlib.suppress(OutOfMemoryError):
            bench.drop(prefixes[1])
        with failing_after(calls), contextlib.suppress(OutOfMemoryError):
            bench.declare(prefixes[0][:50])
        with failing_after(calls), contextlib.suppress(OutOfMemoryError):
            bench.drop(prefixes[0])
        assert_right(bench, prefixes)
        bench.declare()
        bench.drop(*prefixes)
        assert active() == before


@every_mix
def test_a_failure_in_the_midst_of_holding_leaves_nothing_wrong(name: str) -> None:
    for calls in range(6):
        bench, prefixes = prepared(name)
        new = ids(60)[:33] + ids(11, seed=5)
        prefill = bench.begun(new, 1)
        while prefill._done < len(new):
            prefill._advance()
        with failing_after(calls), contextlib.suppress(OutOfMemoryError):
            prefill.step()
        assert_right(bench, [*prefixes, new])
        bench.warm(new, *prefixes)
        assert len(bench.store.held) == 4
        assert_right(bench, [*prefixes, new])


@every_mix
def test_a_failure_in_the_midst_of_keeping_a_part_does_not_end_the_thread(name: str) -> None:
    for calls in range(8):
        bench, prefixes = prepared(name)
        new = ids(60)[:33] + ids(27, seed=5)
        prefill, desk = bench.begun(new, 2), Desk()
        bench.declare(*prefixes, new[:44])
        desk.submit(Job(prefill.step, prefill.abandon)).cancel()
        with failing_after(calls):
            desk.step()
        assert_right(bench, [*prefixes, new])


@every_mix
@pytest.mark.usefixtures("no_collector")
def test_a_warming_that_fails_holds_nothing_while_its_error_is_known(name: str) -> None:
    """Whoever gets the error may keep it for long, and with it the frames that it went through."""
    bench, desk = Bench(name), Desk()
    before = active()
    prefill = bench.begun(ids(60), 4)
    model = bench.provider.model

    def fail(tokens: Any, cache: Any) -> None:
        model(tokens, cache=cache)
        raise OutOfMemoryError

    bench.provider.model = fail
    if bench.provider.draft_model is not None:
        fail.layers = model.layers  # type: ignore[attr-defined]
    future = desk.submit(Job(prefill.step, prefill.abandon))
    desk.step()
    del desk
    assert isinstance(future.exception(0), OutOfMemoryError)
    assert active() == before


@pytest.mark.parametrize("is_joined", [True, False])
def test_a_prefix_that_came_in_very_many_pieces_is_held_and_the_others_stay(is_joined: bool) -> None:
    pieces, tokens, other = 1500, range(3000), Prefix((99999, 1, 2))
    store, prefix = WarmStore(), Prefix(tuple(tokens))
    store.declare([prefix, other])
    cache = KVCache()
    cache.update_and_fetch(mx.ones((1, 1, 3, 8)), mx.ones((1, 1, 3, 8)))
    store.hold(other, [cache], {})
    rows = [(mx.ones((1, 1, 2, 8)), mx.ones((1, 1, 2, 8))) for _ in range(pieces)]
    runs: list[Run] = [(2 * at, 2 * at + 2, [own]) for at, own in enumerate(rows)]
    layout = Layout((Kind.ROWS,), [KVCache()])
    if is_joined:
        steps = list(join(runs, [(0, len(prefix))]))
        assert steps[:-1] == [None]
        runs = steps[-1] or []
    store.take_in(prefix.packed, layout, runs, {})
    tree = store.tree(is_quantised=False)
    assert tree is not None
    # The last two are joined in any case.
    assert len(list(tree.nodes())) == (2 if is_joined else pieces)
    # What was kept apart is joined later: at once, or the first ones would be copied again and again.
    store.declare([prefix])
    assert len(list(tree.nodes())) == 2
    found = store.begin(prefix)
    assert found is not None
    store.hold(prefix, found.copy(0), {})
    assert set(store.held) == {prefix.key, other.key}
    store.drop([prefix.key, other.key])
    store.declare([])
    assert store.warm_bytes == 0
