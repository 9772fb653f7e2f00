"""A tree of KV state: every token's state is held once, however many prefixes begin with it.

Everything here runs on the engine's thread. What is held is never written to again and never handed out: a
request gets a cache of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from warmd.engines.mlx_lm import layers
from warmd.engines.mlx_lm.layers import Kind, Rows
from warmd.engines.mlx_lm.needs import Needs, gap, groups_to_fold
from warmd.engines.mlx_lm.runs import rows_of
from warmd.engines.mlx_lm.state import Layout, Outline, Run, Snapshot, Span
from warmd.radix import Node, RadixTree, Sharing, Tokens


@dataclass(frozen=True, slots=True)
class Match:
    """State that a sequence of tokens can go on from.

    Attributes:
        node: Where it ends.
        length: Tokens of it; less than the node's end when only a beginning of the node matches.
    """

    node: Node[Span]
    length: int


class KVTree:
    """State of one layout.

    Args:
        layout: Of every cache that is deposited.
        wanted: Counts the prefixes that are, or will be, held; when it changes, `wanted_changed` says so.
        floor: The least length that can be handed out.
        spacing: Tokens between checkpoints: snapshots inside of long runs.
    """

    def __init__(self, layout: Layout, wanted: Sharing, *, floor: int, spacing: int) -> None:
        self._layout = layout
        self._floor = floor
        self._needs = Needs(wanted, layout.is_cuttable, floor, spacing)
        self._tree: RadixTree[Span] = RadixTree(Span([], None))
        self.ends: dict[str, Node[Span]] = {}
        """Where held prefixes end, by key, in the order in which they came."""
        self._parts: dict[str, Node[Span]] = {}
        """How far stopped warmings of wanted prefixes have come, by key, where state cannot be cut."""

    # --- reading ---------------------------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        """How every state in it is laid out."""
        return self._layout

    def depth(self, tokens: Tokens) -> int:
        """How many of the tokens are on a path, whether or not anything can go on from there."""
        return self._tree.walk(tokens)[1]

    def match(self, tokens: Tokens, at_most: int) -> Match | None:
        """The longest state that `tokens` begins with, of no more than `at_most` tokens."""
        node, done = self._tree.walk(tokens)
        done = min(done, at_most)
        for above in reversed(node.path()):
            if self._layout.is_cuttable:
                length = min(above.end, done)
            else:
                length = above.end if above.payload.snapshot is not None else 0
            if max(above.start, self._floor - 1) < length <= done:
                return Match(above, length)
        return None

    def copy(self, match: Match, more: int) -> list[Any]:
        """A fresh prompt cache, which its user may change (lazy).

        Args:
            match: What it holds.
            more: Tokens that will be appended first; room for them is made while copying.
        """
        path = match.node.path()
        # Whole steps, as mlx-lm's caches have them: the next write finds its place.
        spare = -(-(match.length + more) // layers.STEP) * layers.STEP - match.length

        def make(index: int, kind: Kind, template: Any) -> Any:
            if kind is Kind.EMPTY:
                return layers.hand_out(template)
            if kind is Kind.SNAPSHOT:
                return layers.hand_out((match.node.payload.snapshot or [])[index])
            pieces = [node.payload.rows_of(index) for node in path]
            pieces[-1] = layers.first_rows(pieces[-1], match.length - match.node.start)
            return layers.make_part(template, pieces, match.length, spare)

        templates = layers.parts(self._layout.skeleton)
        made = [
            make(index, *item) for index, item in enumerate(zip(self._layout.kinds, templates, strict=True))
        ]
        return layers.regroup(self._layout.skeleton, iter(made))

    def nodes(self) -> Iterable[Node[Span]]:
        """Every node but the root."""
        return (node for node in self._tree.root if node.parent is not None)

    def outline(self) -> Outline:
        """What of it other threads may look at."""
        places = {id(self._tree.root): 0}
        nodes: list[tuple[int, Tokens, bool]] = []
        for node in self.nodes():
            nodes.append((places[id(node.parent)], node.tokens, node.payload.snapshot is not None))
            places[id(node)] = len(nodes)
        return Outline(self._layout.is_cuttable, self._floor, nodes)

    # --- changing --------------------------------------------------------------------------------

    def deposit(self, tokens: Tokens, cache: list[Any], snapshots: Mapping[int, Snapshot]) -> Node[Span]:
        """Take over a cache, keeping of it what is not held yet.

        Args:
            tokens: What it has seen.
            cache: Nobody else's; emptied layer by layer, so that hardly more than one layer is held twice.
            snapshots: Those that were taken on the way, by position.

        Returns:
            The node that ends with the last token.

        Raises:
            ValueError: The cache is not laid out as the others.
        """
        if Layout.of(cache, len(tokens)).kinds != self._layout.kinds:
            raise ValueError("the model's caches are not laid out as before")
        last = self._layout.snapshot(cache)
        parts = list(layers.parts(cache))
        cache.clear()
        at = {} if last is None else {**snapshots, len(tokens): last}
        return self._grow(tokens, at, (), lambda spans: self._take_rows(parts, spans))

    def graft(self, tokens: Tokens, runs: Sequence[Run], snapshots: Mapping[int, Snapshot]) -> None:
        """Take over state that was loaded, keeping of it what is not held yet and of use to a wanted prefix.

        Args:
            tokens: The path up to its end.
            runs: Each going on where the last one ends; the first begins no later than where the tree parts
                from the path. Each one gets a node of its own.
            snapshots: By position on the path.
        """

        def take_rows(spans: Sequence[tuple[int, int]]) -> list[list[Rows | None]]:
            parts = range(len(self._layout.kinds))
            rows = [[rows_of(runs, start, end, index) for index in parts] for start, end in spans]
            mx.eval(layers.arrays_of(rows))
            return rows

        self.tidy(self._grow(tokens, snapshots, [end for _, end, _ in runs], take_rows))

    def _grow(
        self,
        tokens: Tokens,
        snapshots: Mapping[int, Snapshot],
        stops: Iterable[int],
        take_rows: Callable[[Sequence[tuple[int, int]]], list[list[Rows | None]]],
    ) -> Node[Span]:
        """Add what is not there of a path, in nodes that end at stops and where there is a snapshot."""
        at = {position: taken for position, taken in snapshots.items() if position >= self._floor}
        node, done = self._tree.walk(tokens)
        if done < node.end:
            node = self._cut(node, done)
        self._fill_in(node, at)
        spans = layers.positions((*at, *stops), done, len(tokens))
        for (start, end), own in zip(spans, take_rows(spans), strict=True):
            node = self._tree.attach(node, tokens[start:end], Span(own, at.get(end)))
        return node

    def _take_rows(self, parts: list[Any], spans: Sequence[tuple[int, int]]) -> list[list[Rows | None]]:
        rows: list[list[Rows | None]] = [[None] * len(parts) for _ in spans]
        for index, kind in enumerate(self._layout.kinds):
            if kind is Kind.ROWS:
                for own, (start, end) in zip(rows, spans, strict=True):
                    own[index] = layers.cut_rows(parts[index], start, end)
                mx.eval(layers.arrays_of([own[index] for own in rows]))
            # Freed before the next one is copied.
            parts[index] = None
        return rows

    def _fill_in(self, node: Node[Span], snapshots: Mapping[int, Snapshot]) -> None:
        """Snapshots at positions that are on the path already."""
        path = {above.end: above for above in node.path()}
        for position, snapshot in sorted(snapshots.items()):
            if position > node.end:
                continue
            if position in path and path[position].payload.snapshot is not None:
                continue
            if position not in path:
                inside = next(above for above in path.values() if above.start < position < above.end)
                path[position] = self._cut(inside, position)
            path[position].payload.set_snapshot(snapshot)

    def _cut(self, node: Node[Span], at: int) -> Node[Span]:
        """Split a node; nothing is known of the snapshot parts at the new place."""
        upper, lower = node.payload.split(at - node.start)
        return self._tree.cut(node, at, upper, lower)

    def hold(self, node: Node[Span], key: str) -> None:
        """A prefix ends at a node and is to stay."""
        node.payload.held = key
        self.ends[key] = node
        self._simplify_above(node)
        self._forget_part(key)

    def keep_part(self, node: Node[Span], key: str | None) -> None:
        """A warming that was stopped has come to a node.

        Args:
            node: Stays as far as a wanted prefix can use it.
            key: The wanted prefix that will go on from there; None where it is not wanted itself.
        """
        if key is not None and not self._layout.is_cuttable:
            before = self._parts.get(key)
            self._parts[key] = node
            if before is not None:
                self.tidy(before)
        self.tidy(node)

    def _forget_part(self, key: str, without: Sharing | None = None) -> None:
        node = self._parts.pop(key, None)
        if node is not None:
            self.tidy(node, without=without)

    def _is_part(self, node: Node[Span]) -> bool:
        return any(part is node for part in self._parts.values())

    def drop(self, key: str, wanted: Tokens | None, doubtful: Sharing | None = None) -> None:
        """Free exactly what nothing else needs of a prefix.

        Args:
            key: The prefix; one that nobody knows is ignored.
            wanted: Its tokens if it is wanted.
            doubtful: Wanted prefixes of which what is there may be wrong: they need nothing of it.
        """
        node = self.ends.pop(key, None)
        if node is not None:
            node.payload.held = None
        elif wanted is not None:
            deepest, done = self._tree.walk(wanted)
            node = deepest if deepest.end == done else None
        if node is not None:
            self.tidy(node, without=doubtful)
        self._forget_part(key, without=doubtful)

    def wanted_changed(self, keys: Collection[str]) -> None:
        """What leads to no wanted prefix goes, and what these share is joined or kept apart."""
        self._parts = {key: node for key, node in self._parts.items() if key in keys}
        for node in list(self.nodes()):
            if node.parent is not None:
                self.tidy(node)

    def tidy(self, node: Node[Span], *, without: Sharing | None = None) -> None:
        """Free what none of the wanted prefixes, but for those left out, could use at a node and above it."""
        while node.parent is not None and not node.children and node.payload.held is None:
            end, parent = self._needs.useful_end(node, without), node.parent
            if end == node.end:
                self._simplify_above(node)
                return
            if end > node.start:
                # Its end is wanted by nobody, but its beginning is.
                self._cut(node, end)
                self._tree.remove(node)
                return
            self._tree.remove(node)
            node = parent
        self._simplify(node)

    def _simplify_above(self, node: Node[Span]) -> None:
        """What a warming went on from may serve nothing else any more."""
        if node.parent is not None:
            self._simplify(node.parent)

    def _simplify(self, node: Node[Span]) -> None:
        """Undo branches that are none any more, from a node on down."""
        run = [node]
        while self._needs.is_joint(run[-1], is_part=self._is_part(run[-1])):
            run[-1].payload.set_snapshot(None)
            run.extend(run[-1].children.values())
        for group in groups_to_fold([len(node.tokens) for node in run]):
            self._fold(run[group])
            top = run[group][-1]
        # A checkpoint before a branch that has gone may leave no gap any more.
        above = top.parent
        if node.parent is None and above is not None and above.payload.snapshot is not None:
            self._simplify(above)

    def _fold(self, nodes: Sequence[Node[Span]]) -> None:
        """Join nodes in the last one, each the only child of the one before."""
        if len(nodes) > 1:
            span = Span.join([node.payload for node in nodes])
            for node in reversed(nodes[:-1]):
                self._tree.fold(node, span)

    def free(self) -> None:
        """Let go of everything, at once."""
        # Nodes and their parents hold each other: left alone, they would wait for Python's collector.
        for node in list(self._tree.root):
            node.parent, node.children = None, {}
        self.ends.clear()
        self._parts.clear()

    # --- checkpoints -----------------------------------------------------------------------------

    def checkpoints(self) -> list[Node[Span]]:
        """Nodes whose snapshot is a checkpoint only: nothing ends, was stopped, parts or will go on there."""
        return [
            node
            for node in self.nodes()
            if node.payload.snapshot is not None
            and node.payload.held is None
            and len(node.children) == 1
            and not self._needs.is_point(node)
            and not self._is_part(node)
        ]

    def thin_out(self, max_bytes: int) -> None:
        """Free checkpoints until they fit, those first that leave the smallest gap."""
        found = self.checkpoints()
        total = sum(node.payload.snapshot_bytes for node in found)
        while found and total > max_bytes:
            node = min(found, key=gap)
            found.remove(node)
            total -= node.payload.snapshot_bytes
            node.payload.set_snapshot(None)
