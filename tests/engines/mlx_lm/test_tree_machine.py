"""Anything that can happen to the warm store, in any order, against a plain model of what it should hold."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from array import array
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.engines.mlx_lm.toy_state import MIXES, Mix, ToyModel, assert_part, assert_rows, assert_state
from tests.engines.mlx_lm.warming import make_provider, warm
from warmd.engines.base import Foreseen, LiveRequest, Prefix, Warmed
from warmd.engines.mlx_lm import layers
from warmd.engines.mlx_lm.foresight import foresight
from warmd.engines.mlx_lm.kvtree import KVTree
from warmd.engines.mlx_lm.layers import Kind
from warmd.engines.mlx_lm.needs import MIN_SHARED
from warmd.engines.mlx_lm.prefill import Prefill
from warmd.engines.mlx_lm.prompt_cache import WarmPromptCache
from warmd.engines.mlx_lm.state import Span
from warmd.engines.mlx_lm.store import Checkpoints, WarmStore
from warmd.memory.cost import Cost
from warmd.radix import Node, pack

Ids = tuple[int, ...]

KEY = ("model", None, None)
SPACING = 16
LONGEST = 60

RUNS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 20)), min_size=1, max_size=4)
PREFIXES = RUNS.map(lambda runs: tuple(token for token, count in runs for _ in range(count))[:LONGEST])
"""Few different tokens in runs of some length: two of these often begin alike."""

DOCUMENTS = st.tuples(
    PREFIXES, st.lists(st.tuples(st.integers(0, LONGEST), PREFIXES), min_size=1, max_size=4)
).map(lambda drawn: [(drawn[0][:at] + tail)[:LONGEST] for at, tail in drawn[1]])
"""A few prefixes that go along one another for a while."""

TAILS = st.lists(st.integers(0, 2), max_size=6).map(tuple)
NUMBERS = st.integers(0, 999)

ENOUGH = 1 << 30
BUDGETS = st.sampled_from([0, 3000, ENOUGH])
"""Of checkpoints: none, some, all."""

SETTINGS = settings(max_examples=35, stateful_step_count=25, derandomize=True)


def common(left: Ids, right: Ids) -> int:
    """The longest common beginning."""
    length = 0
    while length < min(len(left), len(right)) and left[length] == right[length]:
        length += 1
    return length


def key_of(tokens: Sequence[int]) -> str:
    """What names them."""
    return hashlib.sha256(array("q", tokens)).hexdigest()


def path_of(node: Node[Span]) -> Ids:
    """The tokens up to a node's end."""
    return tuple(node.path_tokens())


# --- what holds of any tree ------------------------------------------------------------------------


def assert_node(tree: KVTree, node: Node[Span]) -> None:
    """A node's tokens, name, rows and snapshot fit together."""
    path = path_of(node)
    assert node.tokens
    assert (node.end, node.key) == (len(path), key_of(path))
    span, kinds = node.payload, tree._layout.kinds
    assert len(span.rows) == len(kinds)
    for kind, rows in zip(kinds, span.rows, strict=True):
        assert (rows is not None) == (kind is Kind.ROWS)
        if rows is not None:
            assert_rows(rows, path, node.start, node.end)
    for index, part in enumerate(span.snapshot or ()):
        assert (part is not None) == (kinds[index] is Kind.SNAPSHOT)
        if part is not None:
            assert_part(part, path)
    if span.held is not None:
        assert span.held == node.key
        assert tree.ends[span.held] is node
        assert tree._layout.is_cuttable == (span.snapshot is None)
    if span.snapshot is not None:
        assert node.end >= tree._floor, "a snapshot that is never handed out"


def assert_links(node: Node[Span]) -> None:
    """Parents and children know each other."""
    for first, child in node.children.items():
        assert (child.parent, child.tokens[0], child.start) == (node, first, node.end)


def assert_bytes(store: WarmStore) -> None:
    """Every array is held once, and is counted."""
    spans = [node.payload for tree in store._trees.values() for node in tree.nodes()]
    found = [array for span in spans for array in layers.arrays_of([span.rows, span.snapshot])]
    assert len({id(array) for array in found}) == len(found)
    assert store.warm_bytes == sum(array.nbytes for array in found)
    on_a_path = {
        id(node.payload)
        for tree in store._trees.values()
        for end in tree.ends.values()
        for node in end.path()
    }
    unfinished = sum(span.nbytes for span in spans if id(span) not in on_a_path)
    held = sum(held.kv_bytes or 0 for held in store.held.values())
    assert held + unfinished == store.warm_bytes


def best_snapshot(store: WarmStore, tokens: Ids, at_most: int) -> int:
    """The longest beginning of `tokens` at whose end the store could go on, if state cannot be cut."""
    lengths = [0]
    for tree in store._trees.values():
        for node in tree.nodes():
            path = path_of(node)
            if node.payload.snapshot is not None and tokens[:at_most][: len(path)] == path:
                lengths.append(len(path))
    return max(lengths)


def assert_compact(tree: KVTree) -> None:
    """Where nothing parts any more, nodes are joined, but for a short one below a far longer one.

    Those that have just ceased to be checkpoints wait for the next declaration.
    """
    longest = 0
    for node in tree.nodes():
        below, count = node, 0
        while len(below.children) == 1 and below.payload.held is None and below.payload.snapshot is None:
            count += 1
            (below,) = below.children.values()
        longest = max(longest, count)
    assert longest <= 6, "a chain of nodes that serve nothing"


def assert_whole(store: WarmStore) -> None:
    """Everything that holds of any store."""
    for tree in store._trees.values():
        assert_links(tree._tree.root)
        for node in tree.nodes():
            assert_node(tree, node)
            assert_links(node)
        ends = {node.payload.held: node for node in tree.nodes() if node.payload.held is not None}
        assert ends == tree.ends
        assert_compact(tree)
    assert_bytes(store)


# --- the plain model -------------------------------------------------------------------------------


class Expected:
    """What a store should hold, by its tokens.

    Attributes:
        held: Held prefixes by key.
        hits: Of each of them.
        wanted: Declared prefixes by key.
        parts: What cancelled warmings and dropped prefixes have left, as far as a declared prefix can use it.
    """

    def __init__(self, mix: Mix) -> None:
        self.mix = mix
        self.is_cuttable = mix.is_cuttable()
        self.wanted: dict[str, Ids] = {}
        self.clear()

    def clear(self) -> None:
        self.held: dict[str, Ids] = {}
        self.parts: set[Ids] = set()

    def is_quantised(self, length: int) -> bool:
        return self.mix.quantised_from is not None and length >= self.mix.quantised_from

    def usable(self, state: Ids, length: int) -> int:
        """How much of a state can serve where `length` tokens of it are right (state that can be cut)."""
        is_too_short = self.is_quantised(len(state)) and not self.is_quantised(length)
        return 0 if is_too_short else length

    def forget_useless(self) -> None:
        """Parts are kept as far as a declared prefix goes along them."""
        self.parts = {self.useful(part) for part in self.parts} - {()}

    def useful(self, part: Ids, without: Collection[str] = ()) -> Ids:
        """What is of use of a part, but to the prefixes of some keys."""
        wanted = [tokens for key, tokens in self.wanted.items() if key not in without]
        reach = max((common(part, tokens) for tokens in wanted), default=0)
        return part[: self.usable(part, reach)]

    def drop(self, key: str, dropped: Collection[str]) -> None:
        """Dropped prefixes are not trusted: only what others need of one stays, also when it is declared."""
        held = self.held.pop(key, ())
        tokens = held or self.wanted[key]
        on_its_way = {part for part in self.parts if tokens[: len(part)] == part}
        self.parts -= on_its_way
        self.parts |= {self.useful(part, without=dropped) for part in (held, *on_its_way)} - {()}

    def hold(self, key: str, tokens: Ids) -> None:
        """A prefix is held. Where it is quantised, what had been left of it before serves others only."""
        self.held[key] = tokens
        if self.is_quantised(len(tokens)) and key in self.wanted:
            left = {
                part
                for part in self.parts
                if not self.is_quantised(len(part)) and tokens[: len(part)] == part
            }
            self.parts -= left
            self.parts |= {self.useful(part, without=[key]) for part in left} - {()}

    def kept(self) -> set[Ids]:
        """Every state, if it can be cut."""
        return {*self.held.values(), *self.parts}

    def best(self, tokens: Ids, at_most: int) -> int:
        """The longest match there is, if state can be cut."""
        lengths = (self.usable(state, min(common(state, tokens), at_most)) for state in self.kept())
        return max(0, *lengths, 0)

    def is_shifted(self, matched: int, tokens: Ids) -> bool:
        """True when a request that starts there would be quantised elsewhere than a cold one."""
        when = self.mix.quantising
        return when is not None and when.shifts(matched, len(tokens))

    def served(self, tokens: Ids) -> int:
        """What a request is served from, if state can be cut."""
        found, when = self.best(tokens, len(tokens) - 1), self.mix.quantising
        if when is None or not self.is_shifted(found, tokens):
            return found
        found = self.best(tokens, found // when.step * when.step)
        return found if found % when.step == 0 else 0

    def whole(self, tokens: Ids, at_most: int) -> int:
        """Tokens of the longest held prefix that `tokens` begin with: the least that any model matches."""
        fitting = (len(t) for t in self.held.values() if len(t) <= at_most and tokens[: len(t)] == t)
        return max(fitting, default=0)

    def leaves(self) -> set[Ids]:
        """Of all that is kept, what is no beginning of something else in the same tree."""
        kept = self.kept()
        return {
            one
            for one in kept
            if not any(
                one != other
                and other[: len(one)] == one
                and self.is_quantised(len(one)) == self.is_quantised(len(other))
                for other in kept
            )
        }


@dataclass
class Running:
    """A warming under way."""

    prefill: Prefill
    tokens: Ids
    reused: int
    done: int
    is_in_store: bool = False


class WarmStoreMachine(RuleBasedStateMachine):
    """What the engine's thread may do to a store, one job after the other."""

    mix: ClassVar[Mix]

    # --- set-up ------------------------------------------------------------------------------------

    @initialize(
        budget=BUDGETS, documents=DOCUMENTS, warmed=st.sampled_from([4, 2, 1, 0]), chunk=st.integers(1, 9)
    )
    def start(self, budget: int, documents: list[Ids], warmed: int, chunk: int) -> None:
        mix = self.mix
        self.store = WarmStore(Checkpoints(SPACING, budget), mix.quantising)
        self.model = ToyModel(mix.make_cache)
        draft = ToyModel(mix.draft) if mix.draft else None
        self.provider = make_provider(self.model, draft, **mix.args)
        self.served: list[LiveRequest] = []
        self.cache = WarmPromptCache(self.store, 10, self.served.append)
        self.cache.model_key = KEY
        self.expected = Expected(mix)
        self.running: Running | None = None
        self.has_lost = False
        self.copies: list[tuple[Ids, list[Any]]] = []
        self.declare_tokens(documents)
        for tokens in documents[:warmed]:
            self.warm(tokens, chunk)

    # --- what is wanted ----------------------------------------------------------------------------

    def note_loss(self) -> None:
        """What a warming under way has gone on from may be freed now, with the checkpoints in it."""
        self.has_lost |= self.running is not None and self.running.reused > 0

    def declare(self, prefixes: dict[str, Ids]) -> None:
        self.note_loss()
        self.expected.wanted = prefixes
        with self.nothing_lost_for(prefixes.values()):
            self.store.declare([Prefix(tokens) for tokens in prefixes.values()])
        self.expected.forget_useless()

    @contextlib.contextmanager
    def nothing_lost_for(self, prefixes: Collection[Ids]) -> Iterator[None]:
        """Wanted prefixes go on from where they could before, also where state cannot be cut."""
        before = {tokens: best_snapshot(self.store, tokens, len(tokens)) for tokens in prefixes}
        yield
        if self.store.checkpoints.max_bytes == ENOUGH:
            for tokens, start in before.items():
                assert start < MIN_SHARED or best_snapshot(self.store, tokens, len(tokens)) >= start

    def declare_tokens(self, documents: Sequence[Ids]) -> None:
        self.declare({key_of(tokens): tokens for tokens in documents if tokens})

    @rule(tokens=PREFIXES)
    def add(self, tokens: Ids) -> None:
        if len(self.expected.wanted) < 5:
            self.declare_tokens([*self.expected.wanted.values(), tokens])

    @precondition(lambda self: self.expected.wanted)
    @rule(number=NUMBERS, at=st.integers(0, LONGEST), tail=PREFIXES, is_in_the_middle=st.booleans())
    def edit(self, number: int, at: int, tail: Ids, is_in_the_middle: bool) -> None:
        """Change an entry from some place on, extend it or shorten it."""
        documents = list(self.expected.wanted.values())
        old = documents[number % len(documents)]
        rest = old[at + 1 :] if is_in_the_middle else ()
        new = (old[:at] + tail[: 1 if is_in_the_middle else len(tail)] + rest)[:LONGEST]
        documents[number % len(documents)] = new
        self.declare_tokens(documents)

    @precondition(lambda self: self.expected.wanted)
    @rule(number=NUMBERS, at=st.integers(1, LONGEST), is_added=st.booleans())
    def shorten(self, number: int, at: int, is_added: bool) -> None:
        """An entry becomes a beginning of itself, or the beginning becomes an entry too."""
        documents = list(self.expected.wanted.values())
        old = documents[number % len(documents)]
        if is_added:
            documents.append(old[:at])
        else:
            documents[number % len(documents)] = old[:at]
        self.declare_tokens(documents[-5:])

    @precondition(lambda self: self.expected.wanted)
    @rule(number=NUMBERS)
    def take_out(self, number: int) -> None:
        documents = list(self.expected.wanted.values())
        del documents[number % len(documents)]
        self.declare_tokens(documents)

    # --- warming -----------------------------------------------------------------------------------

    def choose(self, number: int, other: Ids) -> Ids:
        """A wanted prefix that is not held, mostly."""
        missing = [t for key, t in self.expected.wanted.items() if key not in self.expected.held]
        choices = [*missing, *missing, *self.expected.wanted.values(), other]
        return choices[number % len(choices)]

    def begin(self, tokens: Ids, chunk: int) -> Running:
        running = Running(
            Prefill(Prefix(tokens), self.store, self.provider, chunk, lambda done: None), tokens, 0, 0
        )
        running.reused = self.matched(self.store.begin(Prefix(tokens)))
        if self.expected.is_cuttable:
            assert running.reused == self.expected.best(tokens, len(tokens))
        else:
            assert running.reused >= self.expected.whole(tokens, len(tokens))
            assert running.reused == best_snapshot(self.store, tokens, len(tokens))
        return running

    @staticmethod
    def matched(found: Any) -> int:
        return found.length if found is not None else 0

    def step(self, running: Running) -> bool:
        """One step; True when it was the last."""
        before, had = self.model.computed, running.done
        if running.is_in_store:
            had, running.is_in_store = self.matched(self.store.begin(Prefix(running.tokens))), False
        else:
            had = had or running.reused
        warmed = running.prefill.step()
        running.done = had + self.model.computed - before
        if warmed is None:
            return False
        size = len(running.tokens)
        assert running.done == size
        key = key_of(running.tokens)
        self.expected.hold(key, running.tokens)
        kv_bytes = self.store.held[key].kv_bytes
        assert warmed == Warmed(size, size - running.reused, running.reused, kv_bytes)
        return True

    def warm(self, tokens: Ids, chunk: int) -> None:
        running = self.begin(tokens, chunk)
        while not self.step(running):
            pass

    def is_idle(self) -> bool:
        return self.running is None

    @precondition(is_idle)
    @rule(number=NUMBERS, other=PREFIXES, chunk=st.integers(1, 9))
    def warm_to_the_end(self, number: int, other: Ids, chunk: int) -> None:
        self.warm(self.choose(number, other), chunk)

    @precondition(is_idle)
    @rule(chunk=st.integers(1, 9))
    def warm_all_as_foreseen(self, chunk: int) -> None:
        """All that is missing, which takes what was foretold."""
        missing = [t for key, t in self.expected.wanted.items() if key not in self.expected.held]
        foreseen = self.foresee(missing)
        for tokens, told in zip(missing, foreseen, strict=True):
            before = self.model.computed
            self.warm(tokens, chunk)
            found = Foreseen(self.model.computed - before)
            # So short a beginning is not kept for another prefix, and may be gone by its turn.
            is_short = len(tokens) - told.new_tokens < MIN_SHARED and not self.expected.is_cuttable
            assert told == found or (is_short and told.new_tokens < found.new_tokens)

    def foresee(self, documents: Sequence[Ids]) -> list[Foreseen]:
        cost = Cost(0, constant=int(not self.expected.is_cuttable))
        return foresight(self.store, None, cost).foresee([Prefix(tokens) for tokens in documents])

    @precondition(is_idle)
    @rule(number=NUMBERS, other=PREFIXES, chunk=st.integers(1, 9))
    def begin_warming(self, number: int, other: Ids, chunk: int) -> None:
        self.running = self.begin(self.choose(number, other), chunk)
        if self.step(self.running):
            self.running = None

    @precondition(lambda self: self.running is not None)
    @rule(steps=st.integers(1, 5))
    def go_on_warming(self, steps: int) -> None:
        for _ in range(steps):
            if self.running is not None and self.step(self.running):
                self.running = None

    @precondition(lambda self: self.running is not None)
    @rule()
    def cancel_warming(self) -> None:
        running, self.running = self.running, None
        assert running is not None
        running.prefill.abandon()
        if running.done > running.reused and not running.is_in_store:
            self.expected.parts.add(running.tokens[: running.done])
            self.expected.forget_useless()

    @precondition(lambda self: bool(self.expected.held or self.expected.wanted))
    @rule(numbers=st.lists(NUMBERS, max_size=3))
    def drop(self, numbers: list[int]) -> None:
        self.note_loss()
        known = list({**self.expected.held, **self.expected.wanted})
        keys = {known[number % len(known)] for number in numbers}
        trusted = [tokens for key, tokens in self.expected.wanted.items() if key not in keys]
        with self.nothing_lost_for(trusted):
            self.store.drop([*keys, "unknown"])
        for key in keys:
            self.expected.drop(key, keys)
        self.expected.forget_useless()

    @rule(number=st.integers(0, 9))
    def clear(self, number: int) -> None:
        if number == 0:
            self.note_loss()
            self.store.clear()
            self.expected.clear()

    # --- requests ----------------------------------------------------------------------------------

    def offer(self, tokens: Ids) -> None:
        """A request gets what a warming under way has done, where that is more than the store has."""
        running = self.running
        if running is None or running.is_in_store:
            return
        has = self.matched(self.store.match(tokens))
        self.store.offer(pack(tokens))
        running.is_in_store = not running.prefill._cache
        if self.expected.is_cuttable:
            shared = min(common(tokens, running.tokens[: running.done]), len(tokens) - 1)
            assert running.is_in_store == (shared >= has + MIN_SHARED)
        if running.is_in_store:
            self.note_loss()
            self.expected.parts.add(running.tokens[: running.done])
            self.expected.forget_useless()

    def fetch(self, tokens: Ids) -> tuple[Ids, list[Any]] | None:
        """What a request is handed."""
        self.offer(tokens)
        cache, rest = self.cache.fetch_nearest_cache(KEY, list(tokens))
        served = self.served.pop()
        matched = len(tokens) - len(rest)
        assert tokens[matched:] == tuple(rest)
        assert rest or not tokens
        if self.expected.is_cuttable:
            assert matched == self.expected.served(tokens)
        else:
            whole = self.expected.whole(tokens, len(tokens) - 1)
            assert matched >= whole or self.expected.is_shifted(whole, tokens)
            best = best_snapshot(self.store, tokens, max(0, len(tokens) - 1))
            assert matched == best or (matched < best and self.expected.is_shifted(best, tokens))
        assert (cache is not None) == (matched > 0)
        if cache is None:
            return None
        self.mix.assert_shape(cache, matched)
        assert (served.cached, served.warm) == (matched, matched)
        return tokens[:matched], cache

    def request(self, number: int, cut: int, tail: Ids) -> Ids:
        """One that goes along something held or wanted."""
        known = [*self.expected.kept(), *self.expected.wanted.values(), (0,)]
        return sorted(known)[number % len(known)][:cut] + tail

    @rule(number=NUMBERS, cut=st.integers(0, LONGEST), tail=TAILS, is_whole=st.booleans())
    def look_up(self, number: int, cut: int, tail: Ids, is_whole: bool) -> None:
        found = self.fetch(self.request(number, LONGEST if is_whole else cut, tail))
        if found is not None:
            assert_state(found[1], found[0])

    @rule(number=NUMBERS, cut=st.integers(1, LONGEST), tails=st.tuples(TAILS, TAILS))
    def look_up_twice(self, number: int, cut: int, tails: tuple[Ids, Ids]) -> None:
        """Two requests go on from the same state; nothing of it is computed until they are served."""
        for tail in tails:
            found = self.fetch(self.request(number, cut, tail))
            if found is not None:
                self.copies = [*self.copies[-3:], found]

    @precondition(lambda self: self.copies)
    @rule(number=NUMBERS, tail=TAILS)
    def serve(self, number: int, tail: Ids) -> None:
        """A request writes into what it was handed, some time later."""
        index = number % len(self.copies)
        tokens, cache = self.copies[index]
        if tail:
            self.mix.append(cache, tail)
        self.copies[index] = (tokens + tail, cache)
        assert_state(cache, tokens + tail)

    def teardown(self) -> None:
        for tokens, cache in getattr(self, "copies", ()):
            assert_state(cache, tokens)

    # --- what always holds -------------------------------------------------------------------------

    @invariant()
    def the_tree_is_whole(self) -> None:
        assert_whole(self.store)

    @invariant()
    def what_is_held_is_what_should_be(self) -> None:
        assert self.store.held.keys() == self.expected.held.keys()
        ends = {key: path_of(node) for tree in self.store._trees.values() for key, node in tree.ends.items()}
        assert ends == self.expected.held

    @invariant()
    def checkpoints_stay_in_their_bounds(self) -> None:
        for tree in self.store._trees.values():
            taken = sum(node.payload.snapshot_bytes for node in tree.checkpoints())
            assert taken <= self.store.checkpoints.max_bytes

    @invariant()
    def checkpoints_leave_no_gaps(self) -> None:
        if self.expected.is_cuttable or self.has_lost or self.store.checkpoints.max_bytes < ENOUGH:
            return
        for tree in self.store._trees.values():
            for end in tree.ends.values():
                marks = [node.end for node in end.path() if node.payload.snapshot is not None]
                gaps = [after - before for before, after in itertools.pairwise([tree._floor - 1, *marks])]
                assert max(gaps) <= SPACING

    @invariant()
    def nothing_else_is_kept(self) -> None:
        nodes = [node for tree in self.store._trees.values() for node in tree.nodes()]
        leaves = {path_of(node) for node in nodes if not node.children}
        if self.expected.is_cuttable:
            assert leaves == self.expected.leaves()
            return
        useful = [*self.expected.held.values(), *self.expected.wanted.values()]
        for node in nodes:
            if not node.children:
                assert node.payload.snapshot is not None
                path = path_of(node)
                assert any(tokens[: len(path)] == path for tokens in useful)


@pytest.mark.parametrize("name", MIXES)
def test_the_store_holds_what_it_should_whatever_happens(name: str) -> None:
    machine = type("Machine", (WarmStoreMachine,), {"mix": MIXES[name]})
    run_state_machine_as_test(machine, settings=SETTINGS)


def reusable(mix: Mix, tokens: Ids, earlier: Ids) -> int:
    """How much of an earlier prefix's state another one goes on from, when both were declared before."""
    shared = common(tokens, earlier)
    if not mix.is_cuttable() and shared < MIN_SHARED and shared < len(earlier):
        return 0
    start = mix.quantised_from
    return 0 if start is not None and shared < start <= len(earlier) else shared


@pytest.mark.parametrize("name", MIXES)
@given(documents=DOCUMENTS, chunk=st.integers(1, 9), budget=BUDGETS)
@settings(SETTINGS, max_examples=20)
def test_what_was_declared_before_is_prefilled_once(
    name: str, documents: list[Ids], chunk: int, budget: int
) -> None:
    mix = MIXES[name]
    store = WarmStore(Checkpoints(SPACING, budget), mix.quantising)
    provider = make_provider(ToyModel(mix.make_cache), ToyModel(mix.draft) if mix.draft else None, **mix.args)
    news = []
    for index, tokens in enumerate(documents):
        # Other entries come and go meanwhile.
        for others in ([(9, index)], []):
            store.declare([Prefix(tokens) for tokens in [*documents, *others]])
        warmed = warm(store, provider, tokens, chunk)
        earlier = (reusable(mix, tokens, other) for other in documents[:index])
        assert warmed.reused_tokens == max(earlier, default=0)
        news.append(warmed.new_tokens)
    if mix.is_cuttable() and mix.quantised_from is None:
        assert sum(news) == len({tokens[: end + 1] for tokens in documents for end in range(len(tokens))})
    assert_whole(store)


def test_what_a_stopped_warming_left_goes_once_all_of_it_is_held_quantised() -> None:
    """Found by the machine, which comes to this once in many runs."""
    machine = type("Machine", (WarmStoreMachine,), {"mix": MIXES["quantised"]})()
    machine.start(budget=0, documents=[(0,)], warmed=4, chunk=1)
    machine.edit(at=0, is_in_the_middle=False, number=0, tail=(0,) * 24)
    machine.begin_warming(chunk=1, number=0, other=(0,))
    machine.cancel_warming()
    assert machine.expected.parts == {(0, 0)}
    machine.nothing_else_is_kept()
    machine.warm_to_the_end(chunk=1, number=0, other=(0,))
    machine.nothing_else_is_kept()
    assert machine.expected.parts == set()
