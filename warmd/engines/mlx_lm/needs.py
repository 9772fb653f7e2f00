"""What of a tree of state is of any use: pure, on its nodes. `KVTree` acts on it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from warmd.engines.mlx_lm.state import Span
from warmd.radix import Node, Sharing

MIN_SHARED = 16
"""A shorter common beginning is not worth a snapshot."""

_FOLD_FACTOR = 8
"""A node is joined with its only child unless it is so many times longer: copying it would cost more than it
brings."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What the nodes of one tree are for.

    Attributes:
        wanted: Counts the prefixes that are, or will be, held.
        is_cuttable: Any beginning of a state is the state of that beginning.
        floor: The least length that can be handed out.
        spacing: Tokens between checkpoints: snapshots inside of long runs.
    """

    wanted: Sharing
    is_cuttable: bool
    floor: int
    spacing: int

    def useful_end(self, leaf: Node[Span], without: Sharing | None = None) -> int:
        """How far wanted prefixes, but for those left out, can use a leaf: its start where they cannot."""
        reach = self.wanted.reach(leaf.path_tokens(), without=without)
        if reach < self.floor or reach <= leaf.start:
            return leaf.start
        if self.is_cuttable:
            return reach
        return leaf.end if reach >= leaf.end and leaf.payload.snapshot is not None else leaf.start

    def is_point(self, node: Node[Span]) -> bool:
        """True when this is the last place on the path from which some wanted prefix can go on.

        There it parts from the others, or from what is held although nobody wants it any more.
        """
        count = self.wanted.count
        return node.end >= MIN_SHARED and count(node.path_tokens()) > count(next_below(node).path_tokens())

    def is_joint(self, node: Node[Span], *, is_part: bool) -> bool:
        """True when nothing parts, ends or goes on between a node and the next one below.

        Args:
            node: Any.
            is_part: A warming that was stopped will go on from its end.
        """
        if node.parent is None or len(node.children) != 1 or node.payload.held is not None:
            return False
        if node.payload.snapshot is None:
            return True
        return not (is_part or gap(node) > self.spacing or self.is_point(node))


def groups_to_fold(lengths: Sequence[int]) -> list[slice]:
    """Which of the nodes of a run to join with each other, the last ones first.

    All at once, as one after the other the first ones would be copied again and again.

    Args:
        lengths: Tokens of each node, from the top.
    """
    groups: list[slice] = []
    size, end = 0, len(lengths)
    for at in reversed(range(len(lengths))):
        if size and lengths[at] > _FOLD_FACTOR * size:
            groups.append(slice(at + 1, end))
            size, end = 0, at + 1
        size += lengths[at]
    return [*groups, slice(0, end)]


def next_below(node: Node[Span]) -> Node[Span]:
    """The next node below with a snapshot; where paths part before, or the only one ends, that one."""
    while len(node.children) == 1:
        (node,) = node.children.values()
        if node.payload.snapshot is not None:
            break
    return node


def gap(node: Node[Span]) -> int:
    """Tokens between the snapshots before and after a checkpoint."""
    before, after = node.parent, next_below(node)
    while before is not None and before.parent is not None and before.payload.snapshot is None:
        before = before.parent
    if after.children and after.payload.snapshot is None:
        # Several paths go on from this one.
        return sys.maxsize
    return after.end - (before.end if before is not None else 0)
