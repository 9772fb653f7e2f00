"""State that was written and loaded again is the state that was computed: on every mix of caches."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from tests.engines.mlx_lm.keeping import Start, make_weights
from tests.engines.mlx_lm.test_tree_machine import assert_bytes, assert_links, assert_node
from tests.engines.mlx_lm.test_tree_memory import active
from tests.engines.mlx_lm.toy_state import MIXES, ToyModel, assert_state
from tests.engines.mlx_lm.warming import ids, make_provider
from warmd.engines.base import Foreseen, Prefix
from warmd.engines.mlx_lm import layers
from warmd.engines.mlx_lm.store import Checkpoints, WarmStore

every_mix = pytest.mark.parametrize("name", MIXES)
LARGE = 1 << 30


class Disk:
    """A folder, and a server that is started on it again and again."""

    def __init__(self, name: str, tmp_path: Path, spacing: int = 16, piece_bytes: int = 4096) -> None:
        self.mix = MIXES[name]
        self.folder = tmp_path / "kv"
        self.weights = make_weights(tmp_path / "model", name)
        self._spacing = spacing
        self._piece_bytes = piece_bytes

    def start(self, *prefixes: Sequence[int]) -> Start:
        """A new run, with nothing in memory, for which some prefixes are declared."""
        mix = self.mix
        draft = ToyModel(mix.draft) if mix.draft else None
        provider = make_provider(ToyModel(mix.make_cache), draft, **mix.args)
        store = WarmStore(Checkpoints(self._spacing, LARGE), mix.quantising)
        start = Start(
            self.folder, self.weights, provider, store, is_checked=False, piece_bytes=self._piece_bytes
        )
        start.declare(*prefixes)
        return start

    def assert_right(self, start: Start, tokens: Sequence[int]) -> int:
        """What a request finds is right; returns how much it finds."""
        found = start.store.match([*tokens, 1])
        if found is None:
            return 0
        cache = found.copy(3)
        assert_state(cache, tuple(tokens[: found.length]))
        self.mix.assert_shape(cache, found.length)
        return found.length


def assert_whole(store: WarmStore) -> None:
    """What is held hangs together, and holds what it says."""
    for tree in store._trees.values():
        for node in tree.nodes():
            assert_node(tree, node)
        assert_links(tree._tree.root)
    assert_bytes(store)


@pytest.fixture
def disk(name: str, tmp_path: Path) -> Disk:
    """A folder for one mix of caches."""
    return Disk(name, tmp_path)


@every_mix
def test_a_restart_costs_no_prefill(disk: Disk) -> None:
    prefixes = [ids(61), ids(30) + ids(20, seed=3), ids(45)]
    first = disk.start(*prefixes)
    for tokens in prefixes:
        first.warm(tokens)
    written = first.write()
    assert len(written) >= 3
    assert first.write() == []
    second = disk.start(*prefixes)
    assert second.foresee(ids(61)) == [Foreseen(61)]
    second.keeper.shelf.refresh()
    assert [second.foresee(tokens) for tokens in prefixes] == [
        [Foreseen(0, 61)],
        [Foreseen(0, 50)],
        [Foreseen(0, 45)],
    ]
    foreseen = second.foresee(*prefixes)
    warmed = [second.warm(tokens) for tokens in prefixes]
    assert [Foreseen(each.new_tokens, each.disk_tokens) for each in warmed] == foreseen
    assert second.foresee(*prefixes) == [Foreseen(0)] * 3
    assert [each.new_tokens for each in warmed] == [0, 0, 0]
    assert [each.source for each in warmed[:2]] == ["disk", "disk"]
    assert [each.reused_tokens + each.disk_tokens for each in warmed] == [61, 50, 45]
    assert [disk.assert_right(second, tokens) for tokens in prefixes] == [61, 50, 45]
    assert_whole(second.store)
    # What came from there is there.
    assert second.write() == []
    assert second.events == []


@every_mix
def test_after_an_edit_what_is_shared_comes_from_disk(name: str, disk: Disk) -> None:
    first = disk.start(ids(61))
    first.warm(ids(61))
    first.write()
    edited = ids(50) + ids(20, seed=5)
    second = disk.start(edited)
    second.keeper.shelf.refresh()
    told = second.foresee(edited)
    warmed = second.warm(edited)
    assert told == [Foreseen(warmed.new_tokens, warmed.disk_tokens)]
    assert disk.assert_right(second, edited) == 70
    # A cut anywhere, or the last checkpoint before the edit.
    assert warmed.disk_tokens == (50 if name in ("cuttable", "quantised") else 48)
    second.write()
    third = disk.start(ids(61), edited)
    assert [third.warm(tokens).new_tokens for tokens in (edited, ids(61))] == [0, 0]
    assert [disk.assert_right(third, tokens) for tokens in (edited, ids(61))] == [70, 61]


@pytest.mark.parametrize("name", ["quantised", "quantised hybrid"])
def test_quantised_state_that_is_too_short_to_be_used_is_not_foretold(disk: Disk) -> None:
    first = disk.start(ids(61))
    first.warm(ids(61))
    first.write()
    edited = ids(20) + ids(30, seed=5)
    second = disk.start(edited)
    second.keeper.shelf.refresh()
    assert second.foresee(edited) == [Foreseen(50)]
    assert second.warm(edited).new_tokens == 50


@every_mix
def test_what_was_loaded_pins_nothing_and_is_given_back(disk: Disk) -> None:
    prefixes = [ids(61), ids(30) + ids(20, seed=3)]
    first = disk.start(*prefixes)
    for tokens in prefixes:
        first.warm(tokens)
    first.write()
    first.store.clear()
    second = disk.start(*prefixes)
    gc.collect()
    before = active()
    for tokens in prefixes:
        assert second.warm(tokens).disk_tokens > 0
    gc.collect()
    spans = [node.payload for tree in second.store._trees.values() for node in tree.nodes()]
    count = sum(len(layers.arrays_of([span.rows, span.snapshot])) for span in spans)
    # mlx shares a buffer rather than copy all but 16 KiB of it.
    assert 0 < active() - before <= second.store.warm_bytes + 16384 * count
    del spans
    second.declare()
    second.store.drop([Prefix(tuple(tokens)).key for tokens in prefixes])
    gc.collect()
    assert (second.store.warm_bytes, active()) == (0, before)


@every_mix
def test_whatever_is_missing_is_prefilled_and_right(name: str, tmp_path: Path) -> None:
    random = Random(name)
    disk = Disk(name, tmp_path, piece_bytes=1024)
    known: list[list[int]] = []
    for _ in range(12):
        for _ in range(random.randint(1, 2)):
            base = random.choice(known) if known and random.random() < 0.7 else []
            cut = random.randint(0, len(base))
            known.append(base[:cut] + ids(random.randint(1, 60), seed=random.randint(1, 5)))
        wanted = random.sample(known, min(len(known), 3))
        start = disk.start(*wanted)
        start.keeper.shelf.refresh()
        for tokens, told in zip(wanted, start.foresee(*wanted), strict=True):
            warmed = start.warm(tokens)
            assert told == Foreseen(warmed.new_tokens, warmed.disk_tokens)
            assert warmed.new_tokens + warmed.reused_tokens + warmed.disk_tokens == len(tokens)
            assert disk.assert_right(start, tokens) == len(tokens)
        assert_whole(start.store)
        if random.random() < 0.8:
            start.write()
        assert start.events == []
        for path in sorted(disk.folder.glob("[!.]*.safetensors")):
            if random.random() < 0.15:
                path.unlink()
