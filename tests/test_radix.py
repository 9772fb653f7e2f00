"""The tree over token ids: its laws against a plain model, and examples."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from warmd.engines.base import Prefix
from warmd.radix import (
    NO_TOKENS,
    Node,
    RadixTree,
    Sharing,
    Tokens,
    common_length,
    pack,
)

Ids = tuple[int, ...]

RUNS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 12)), min_size=1, max_size=4)
SEQUENCES = RUNS.map(lambda runs: tuple(token for token, count in runs for _ in range(count)))
"""Few different tokens in runs of some length: two of these often begin alike."""

SETTINGS = settings(max_examples=200, derandomize=True)


def common(left: Sequence[int], right: Sequence[int]) -> int:
    """The longest common beginning, token by token."""
    length = 0
    while length < min(len(left), len(right)) and left[length] == right[length]:
        length += 1
    return length


def key_of(tokens: Sequence[int]) -> str:
    """What names them."""
    return hashlib.sha256(array("q", tokens)).hexdigest()


def grow(tree: RadixTree[None], tokens: Tokens) -> tuple[Node[None], int]:
    """Make a node that ends with `tokens`; returns it and how many of them are new."""
    node, done = tree.walk(tokens)
    if done < node.end:
        node = tree.cut(node, done, None, None)
    return (tree.attach(node, tokens[done:], None) if done < len(tokens) else node), len(tokens) - done


def paths(tree: RadixTree[None]) -> list[Ids]:
    """The tokens from the root to the end of each node."""
    return [tuple(node.path_tokens()) for node in tree.root if node.parent is not None]


def assert_sound(tree: RadixTree[None]) -> None:
    """Everything that holds of any tree."""
    assert (tree.root.start, tree.root.end, tree.root.tokens) == (0, 0, NO_TOKENS)
    for node in tree.root:
        path = node.path_tokens()
        assert node.key == key_of(path)
        assert node.end == len(path) == node.start + len(node.tokens)
        for first, child in node.children.items():
            assert (child.parent, child.tokens[0]) == (node, first)
            assert child.path() == [*node.path(), child]


# --- common_length ---------------------------------------------------------------------------------


@given(SEQUENCES, SEQUENCES)
@SETTINGS
def test_the_common_length_is_that_of_a_loop(left: Ids, right: Ids) -> None:
    assert common_length(pack(left), pack(right)) == common(left, right)
    assert common_length(left, right) == common(left, right)


@pytest.mark.parametrize(
    ("left", "right", "length"),
    [
        ((), (), 0),
        ((), (1,), 0),
        ((1,), (2,), 0),
        ((1, 2, 3), (1, 2, 3), 3),
        ((1, 2, 3), (1, 2, 4), 2),
        ((1, 2), (1, 2, 4), 2),
        ((1, 9, 3, 4), (1, 8, 3, 4), 1),
    ],
)
def test_examples_of_a_common_length(left: Ids, right: Ids, length: int) -> None:
    assert common_length(pack(left), pack(right)) == length
    assert common_length(pack(right), pack(left)) == length


def test_long_sequences_that_part_at_any_place() -> None:
    tokens = pack(range(300))
    for at in range(300):
        other = tokens[:at] + pack([-1]) + tokens[at + 1 :]
        assert common_length(tokens, other) == at


# --- the tree --------------------------------------------------------------------------------------


@given(st.lists(SEQUENCES, max_size=6), SEQUENCES)
@SETTINGS
def test_a_walk_goes_as_far_as_any_path(held: list[Ids], tokens: Ids) -> None:
    tree: RadixTree[None] = RadixTree(None)
    for item in held:
        grow(tree, pack(item))
    node, done = tree.walk(pack(tokens))
    assert done == max((common(tokens, item) for item in held), default=0)
    assert node.start < done <= node.end or node is tree.root
    assert tuple(node.path_tokens()[:done]) == tokens[:done]


def test_a_walk_through_an_empty_tree_and_with_no_tokens_stays_at_the_root() -> None:
    tree: RadixTree[None] = RadixTree(None)
    assert tree.walk(pack([1, 2])) == (tree.root, 0)
    grow(tree, pack([1, 2]))
    assert tree.walk(NO_TOKENS) == (tree.root, 0)


def test_token_ids_of_any_size_and_sign() -> None:
    tree: RadixTree[None] = RadixTree(None)
    tokens = pack([2**63 - 1, -(2**63), 0, -1])
    grow(tree, tokens)
    assert tree.walk(tokens)[1] == 4
    assert_sound(tree)


def test_a_cut_keeps_the_node_as_the_lower_part() -> None:
    tree: RadixTree[str] = RadixTree("root")
    node = tree.attach(tree.root, pack([1, 2, 3, 4]), "whole")
    leaf = tree.attach(node, pack([5]), "leaf")
    above = tree.cut(node, 1, "upper", "lower")
    assert (above.tokens, above.payload, above.start, above.end) == (pack([1]), "upper", 0, 1)
    assert (node.tokens, node.payload, node.start, node.end) == (pack([2, 3, 4]), "lower", 1, 4)
    assert (above.parent, node.parent, leaf.parent) == (tree.root, above, node)
    assert leaf.path() == [above, node, leaf]


def test_a_fold_keeps_the_child_and_undoes_a_cut() -> None:
    tree: RadixTree[str] = RadixTree("root")
    node = tree.attach(tree.root, pack([1, 2, 3, 4]), "whole")
    leaf, key = tree.attach(node, pack([5]), "leaf"), node.key
    above = tree.cut(node, 3, "upper", "lower")
    assert tree.fold(above, "joined") is node
    assert (node.tokens, node.payload, node.key) == (pack([1, 2, 3, 4]), "joined", key)
    assert (node.parent, tree.root.children) == (tree.root, {1: node})
    assert (above.parent, node.start, leaf.start, leaf.path()) == (None, 0, 4, [node, leaf])


def test_what_cannot_be_done_is_refused_and_changes_nothing() -> None:
    tree: RadixTree[None] = RadixTree(None)
    node = tree.attach(tree.root, pack([1, 2, 3]), None)
    tree.attach(node, pack([4]), None)
    tree.attach(node, pack([5]), None)
    before = paths(tree)
    for tokens in ([], [4, 9]):
        with pytest.raises(ValueError, match="siblings"):
            tree.attach(node, pack(tokens), None)
    for at in (0, 3, 4, -1):
        with pytest.raises(ValueError, match="strictly inside"):
            tree.cut(node, at, None, None)
    with pytest.raises(ValueError, match="unpack"):
        tree.fold(node, None)
    with pytest.raises(ValueError, match="root"):
        tree.fold(tree.root, None)
    for inner in (node, tree.root):
        with pytest.raises(ValueError, match="leaves"):
            tree.remove(inner)
    assert paths(tree) == before
    assert_sound(tree)


def test_parents_come_before_their_children() -> None:
    tree: RadixTree[None] = RadixTree(None)
    for tokens in ([1, 2, 3], [1, 2, 4, 5], [1, 2, 4, 6], [7]):
        grow(tree, pack(tokens))
    seen: set[Node[None]] = set()
    for node in tree.root:
        assert node.parent is None or node.parent in seen
        seen.add(node)
    assert len(seen) == 1 + len(paths(tree))


class Changes(RuleBasedStateMachine):
    """Any changes in any order, against the set of places where a node ends."""

    def __init__(self) -> None:
        super().__init__()
        self.tree: RadixTree[None] = RadixTree(None)
        self.ends: set[Ids] = set()

    def pick(self, number: int) -> Node[None]:
        nodes = [node for node in self.tree.root if node.parent is not None]
        return nodes[number % len(nodes)]

    @rule(tokens=SEQUENCES)
    def grow(self, tokens: Ids) -> None:
        length = max((common(tokens, end) for end in self.ends), default=0)
        node, new = grow(self.tree, pack(tokens))
        assert (tuple(node.path_tokens()), new) == (tokens, len(tokens) - length)
        self.ends |= {tokens, tokens[:length]} - {()}

    @precondition(lambda self: self.ends)
    @rule(number=st.integers(0, 99), inside=st.integers(1, 30))
    def cut(self, number: int, inside: int) -> None:
        node = self.pick(number)
        at = node.start + inside
        if at < node.end:
            path = tuple(node.path_tokens())
            above = self.tree.cut(node, at, None, None)
            assert (tuple(above.path_tokens()), tuple(node.path_tokens())) == (path[:at], path)
            self.ends.add(path[:at])

    @precondition(lambda self: self.ends)
    @rule(number=st.integers(0, 99))
    def fold(self, number: int) -> None:
        node = self.pick(number)
        if len(node.children) == 1:
            self.ends.remove(tuple(node.path_tokens()))
            self.tree.fold(node, None)

    @precondition(lambda self: self.ends)
    @rule(number=st.integers(0, 99))
    def remove(self, number: int) -> None:
        node = self.pick(number)
        if not node.children:
            self.ends.remove(tuple(node.path_tokens()))
            self.tree.remove(node)

    @invariant()
    def sound(self) -> None:
        assert_sound(self.tree)
        found = paths(self.tree)
        assert len(found) == len(set(found))
        assert set(found) == self.ends


def test_any_changes_keep_the_tree_sound() -> None:
    run_state_machine_as_test(Changes, settings=settings(SETTINGS, max_examples=60, stateful_step_count=30))


@given(st.lists(SEQUENCES, min_size=1, max_size=5), st.randoms(use_true_random=False))
@SETTINGS
def test_the_order_in_which_paths_came_does_not_show(items: list[Ids], random: Random) -> None:
    trees: list[RadixTree[None]] = [RadixTree(None), RadixTree(None)]
    shuffled = list(items)
    random.shuffle(shuffled)
    for tree, order in zip(trees, (items, shuffled), strict=True):
        for item in order:
            grow(tree, pack(item))
    assert set(paths(trees[0])) == set(paths(trees[1]))


@given(SEQUENCES)
@SETTINGS
def test_a_node_is_named_like_a_prefix(tokens: Ids) -> None:
    tree: RadixTree[None] = RadixTree(None)
    assert grow(tree, pack(tokens))[0].key == Prefix(tokens).key


# --- what a set of prefixes has in common ----------------------------------------------------------


@given(st.lists(SEQUENCES, max_size=6))
@SETTINGS
def test_branch_points_are_what_a_prefix_has_in_common_with_any_other(items: list[Ids]) -> None:
    expected = [
        {common(item, other) for number, other in enumerate(items) if number != index} - {0, len(item)}
        for index, item in enumerate(items)
    ]
    sharing = Sharing(map(pack, items))
    assert [sharing.branch_points(pack(item)) for item in items] == expected


def own(tokens: Ids, others: Sequence[Ids]) -> int:
    """How many of its tokens none of the others begins with."""
    return len(tokens) - max((common(tokens, other) for other in others), default=0)


@given(st.lists(SEQUENCES, max_size=5), st.lists(SEQUENCES, max_size=3), st.data())
@SETTINGS
def test_sharing_counts_what_no_other_begins_with(
    items: list[Ids], held: list[Ids], data: st.DataObject
) -> None:
    sharing, present = Sharing(map(pack, held)), list(held)
    for item in items:
        assert sharing.add(pack(item)) == own(item, present)
        present.append(item)
        if data.draw(st.booleans()):
            out = present.pop(data.draw(st.integers(0, len(present) - 1)))
            assert sharing.remove(pack(out)) == own(out, present)


@given(st.lists(SEQUENCES, max_size=5))
@SETTINGS
def test_what_is_counted_adds_up_to_the_distinct_beginnings(items: list[Ids]) -> None:
    beginnings = {item[: length + 1] for item in items for length in range(len(item))}
    sharing = Sharing()
    assert sum(sharing.add(pack(item)) for item in items) == len(beginnings)
    assert sum(sharing.remove(pack(item)) for item in items) == len(beginnings)


def shape(sharing: Sharing) -> list[tuple[int, int, str]]:
    """Every node of it."""
    root, _ = sharing.walk(NO_TOKENS)
    return sorted((node.end, node.payload, node.key) for node in root)[1:]


@given(st.lists(st.lists(SEQUENCES, max_size=4, unique=True), max_size=4))
@SETTINGS
def test_what_was_counted_before_leaves_no_trace(sets: list[list[Ids]]) -> None:
    sharing = Sharing()
    for items in sets:
        sharing.become({repr(item): pack(item) for item in items})
        assert shape(sharing) == shape(Sharing(map(pack, items)))


@given(st.lists(SEQUENCES, max_size=5), st.lists(SEQUENCES, max_size=3), st.data())
@SETTINGS
def test_a_trial_is_undone(items: list[Ids], more: list[Ids], data: st.DataObject) -> None:
    sharing = Sharing(map(pack, items))
    with sharing.trial() as trial:
        present = list(items)
        for item in more:
            trial.add(pack(item))
            present.append(item)
            if data.draw(st.booleans()):
                trial.remove(pack(present.pop(data.draw(st.integers(0, len(present) - 1)))))
        assert shape(sharing) == shape(Sharing(map(pack, present)))
    assert shape(sharing) == shape(Sharing(map(pack, items)))


@given(st.lists(SEQUENCES, max_size=5), SEQUENCES, st.integers(0, 3))
@SETTINGS
def test_how_far_others_begin_like_some_tokens(items: list[Ids], tokens: Ids, without: int) -> None:
    sharing = Sharing(map(pack, items))
    for counted, left_out in ((items, None), (items[without:], Sharing(map(pack, items[:without])))):
        expected = max((common(tokens, item) for item in counted), default=0)
        assert sharing.reach(pack(tokens), without=left_out) == expected


def test_examples_of_branch_points() -> None:
    tokens = [(1, 2, 3, 4), (1, 2, 5), (1, 2), (9,), (1, 2, 3, 4)]
    sharing = Sharing(map(pack, tokens))
    found = [sharing.branch_points(pack(item)) for item in tokens]
    assert found == [{2}, {2}, set(), set(), {2}]
