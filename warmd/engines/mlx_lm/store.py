"""The warm store: which prefixes are held, and the trees that hold their state. Engine's thread only."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import mlx.core as mx

from warmd.engines.base import Held, Prefix
from warmd.engines.mlx_lm.kvtree import KVTree, Match
from warmd.engines.mlx_lm.needs import MIN_SHARED
from warmd.engines.mlx_lm.state import Layout, Outline, Run, Snapshot, Span
from warmd.radix import Node, Sharing, Tokens, pack


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Snapshots inside of long runs, for models whose state cannot be cut.

    Attributes:
        spacing: Tokens between two.
        max_bytes: Of all together.
    """

    spacing: int = 1024
    max_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class Found:
    """What a request can start from: a match, and in which tree."""

    tree: KVTree
    match: Match

    @property
    def length(self) -> int:
        """Tokens of it."""
        return self.match.length

    def copy(self, more: int) -> list[Any]:
        """A fresh prompt cache with room for `more` tokens, which its user may change (lazy)."""
        return self.tree.copy(self.match, more)


@dataclass(frozen=True, slots=True)
class Quantising:
    """When mlx-lm's server quantises state.

    Attributes:
        step: After each step of so many tokens of a prefill,
        start: once there are so many.
    """

    step: int
    start: int

    @property
    def first(self) -> int:
        """Tokens from which on a cold prefill has quantised its state."""
        return max(1, -(-self.start // self.step)) * self.step

    def shifts(self, done: int, tokens: int) -> bool:
        """True when a prefill that begins after `done` of its tokens quantises elsewhere than a cold one."""
        return done < self.first and done % self.step != 0 and tokens - 1 > max(self.step, self.start)


class Unfinished(Protocol):
    """State that is being computed."""

    def offer(self, tokens: Tokens) -> None:
        """A request comes that may begin with it."""


class WarmStore:
    """Warm prefixes of the loaded model.

    Quantised state (`--kv-bits`) is another state for the same tokens: it has a tree of its own, from which
    nothing is handed out that is shorter than what a cold prefill would have quantised.

    Args:
        checkpoints: How many, of models that need them.
        quantising: When state is quantised; None where it never is.
        agree: True when every rank has the same number; one process alone always agrees.
        on_divergence: Called when they have not, and everything has been freed.

    Attributes:
        unfinished: What is being warmed, in the order in which it was begun.
    """

    def __init__(
        self,
        checkpoints: Checkpoints | None = None,
        quantising: Quantising | None = None,
        agree: Callable[[int], bool] = lambda number: True,
        on_divergence: Callable[[], None] = lambda: None,
    ) -> None:
        self.checkpoints = checkpoints or Checkpoints()
        self._agree = agree
        self._on_divergence = on_divergence
        self._wanted: dict[str, Prefix] = {}
        self._sharing = Sharing()
        self._trees: dict[bool, KVTree] = {}
        self.held: Mapping[str, Held] = MappingProxyType({})
        """A snapshot that other threads may read: replaced at each change, never changed."""
        self.outlines: Mapping[bool, Outline] = MappingProxyType({})
        """Likewise, of each tree by whether its state is quantised."""
        self.unfinished: dict[Unfinished, None] = {}
        self.reset(quantising)

    def reset(self, quantising: Quantising | None = None) -> None:
        """Free everything, for another model."""
        self._quantising = quantising
        for tree in self._trees.values():
            tree.free()
        self._trees = {}
        self.unfinished.clear()
        mx.clear_cache()
        self.warm_bytes = 0
        """Bytes of everything held. For any thread, as is the next one."""
        self.checkpoint_bytes = 0
        """Of those, bytes of checkpoints."""
        self._weigh()

    # --- what is wanted --------------------------------------------------------------------------

    def declare(self, prefixes: Collection[Prefix]) -> None:
        """Tell every prefix that is to be held: what they share is prefilled and held once.

        State that was left by a cancelled warming stays as far as one of them can use it.
        """
        wanted = {prefix.key: prefix for prefix in prefixes}
        if wanted.keys() == self._wanted.keys():
            return
        self._wanted = wanted
        self._sharing.become({key: prefix.packed for key, prefix in wanted.items()})
        with self._changing():
            for tree in self._trees.values():
                tree.wanted_changed(wanted.keys())

    def stops(self, prefix: Prefix, start: int, spacing: int) -> list[int]:
        """Where to pause the prefill of a prefix that begins at `start`, for a snapshot: up to its end."""
        marks = {*self._points(prefix), *range(spacing, len(prefix), spacing), len(prefix)}
        return sorted(mark for mark in marks if start < mark <= len(prefix))

    def is_branch_point(self, prefix: Prefix, position: int) -> bool:
        """True when another wanted prefix parts from this one there."""
        return position in self._points(prefix)

    def branch_points(self, tokens: Tokens) -> frozenset[int]:
        """Where wanted prefixes part on a path, or one of them ends on it."""
        return self._sharing.branch_points(tokens)

    def _points(self, prefix: Prefix) -> frozenset[int]:
        found = self._sharing.branch_points(prefix.packed) if prefix.key in self._wanted else frozenset()
        return frozenset(point for point in found if point >= MIN_SHARED)

    # --- what is held ----------------------------------------------------------------------------

    def match(self, tokens: Sequence[int]) -> Found | None:
        """The longest state that a request can go on from: at least one token of it is left over."""
        packed = tokens if isinstance(tokens, array) else pack(tokens)
        found = self._match(packed, len(tokens) - 1)
        if (
            found is None
            or self._quantising is None
            or not self._quantising.shifts(found.length, len(tokens))
        ):
            return found
        # The server's steps count from where it begins, and it quantises after a step.
        step = self._quantising.step
        found = self._match(packed, found.length // step * step)
        return found if found is not None and found.length % step == 0 else None

    def begin(self, prefix: Prefix) -> Found | None:
        """The longest state that the prefill of a prefix can go on from: all of it, perhaps."""
        # A prefix is held in the form that a cold prefill of it has at its end.
        found = self._match(prefix.packed, len(prefix))
        return found if self.is_common(found.length if found is not None else 0) else None

    def is_common(self, found: int) -> bool:
        """True when every rank has found so many tokens. If not, nothing is held any more, on all of them.

        A step on different tokens would make nonsense of all ranks' answers, or wait for ever.
        """
        if self._agree(found):
            return True
        self.clear()
        self._on_divergence()
        return False

    def _match(self, tokens: Tokens, at_most: int) -> Found | None:
        found = ((tree, tree.match(tokens, at_most)) for tree in self._trees.values())
        matches = [Found(tree, match) for tree, match in found if match is not None]
        return max(matches, key=lambda item: item.length, default=None)

    def hold(self, prefix: Prefix, cache: list[Any], snapshots: Mapping[int, Snapshot]) -> int:
        """Hold a prefix.

        Args:
            prefix: What the cache has seen.
            cache: Taken over, and emptied.
            snapshots: Taken on the way, by position.

        Returns:
            Bytes held for it.
        """
        with self._changing():
            tree = self._tree_for(Layout.of(cache, len(prefix)), len(prefix))
            tree.hold(tree.deposit(prefix.packed, cache, snapshots), prefix.key)
            for other in self._trees.values():
                if other is not tree and prefix.key in self._wanted:
                    # A warming that was stopped before the state was quantised has left a part there.
                    other.drop(prefix.key, prefix.packed, Sharing([prefix.packed]))
        return self._kv_bytes[prefix.key]

    def keep_part(
        self, prefix: Prefix, done: int, cache: list[Any], snapshots: Mapping[int, Snapshot]
    ) -> None:
        """Keep what a warming that was stopped has come to, as far as a declared prefix can use it."""
        with self._changing():
            tree = self._tree_for(Layout.of(cache, done), done)
            key = prefix.key if prefix.key in self._wanted else None
            tree.keep_part(tree.deposit(prefix.packed[:done], cache, snapshots), key)

    def take_in(
        self, tokens: Tokens, layout: Layout, runs: Sequence[Run], snapshots: Mapping[int, Snapshot]
    ) -> None:
        """Take over state that was loaded, as far as a declared prefix can use it.

        Args:
            tokens: The path up to its end.
            layout: Of the state.
            runs: See `KVTree.graft`.
            snapshots: By position.
        """
        with self._changing():
            self._tree_for(layout, len(tokens)).graft(tokens, runs, snapshots)

    def tree(self, *, is_quantised: bool) -> KVTree | None:
        """The tree of such state; None while there is none."""
        return self._trees.get(is_quantised)

    def depth_of(self, tokens: Tokens, is_quantised: bool) -> int:
        """How many of the tokens are held in a form, so that a prefill can go on from there."""
        tree = self._trees.get(is_quantised)
        match = tree.match(tokens, len(tokens)) if tree is not None else None
        return match.length if match is not None else 0

    def held_ends(self) -> list[tuple[bool, str, Node[Span]]]:
        """Each held prefix: whether it is quantised, its key, and the node that it ends with."""
        return [
            (is_quantised, key, end)
            for is_quantised, tree in self._trees.items()
            for key, end in tree.ends.items()
        ]

    @property
    def quantised_from(self) -> int | None:
        """The least length of a prefix that is held quantised; None where none is."""
        return self._quantising.first if self._quantising is not None else None

    def _tree_for(self, layout: Layout, tokens: int) -> KVTree:
        quantised_from = self.quantised_from
        is_quantised = quantised_from is not None and tokens >= quantised_from
        if is_quantised not in self._trees:
            floor = quantised_from if is_quantised and quantised_from is not None else 1
            self._trees[is_quantised] = KVTree(
                layout, self._sharing, floor=floor, spacing=self.checkpoints.spacing
            )
        return self._trees[is_quantised]

    def offer(self, tokens: Tokens) -> None:
        """A request comes: what is being warmed just now may be of use to it."""
        for each in list(self.unfinished):
            # Whatever goes wrong with a warming there, the request must not fail for it.
            with contextlib.suppress(Exception):
                each.offer(tokens)

    def drop(self, keys: Collection[str]) -> None:
        """Free what only these prefixes needed, also of wanted ones that are held in part only."""
        wanted = {key: self._wanted[key].packed for key in keys if key in self._wanted}
        doubtful = Sharing(wanted.values())
        with self._changing():
            for key in keys:
                for tree in self._trees.values():
                    tree.drop(key, wanted.get(key), doubtful)

    def free_checkpoints(self) -> bool:
        """Free what only saves time; False when there was nothing of it."""
        had_some = self.checkpoint_bytes > 0
        for tree in self._trees.values():
            tree.thin_out(0)
        self._settle()
        return had_some

    def clear(self) -> None:
        """Free everything."""
        self.reset(self._quantising)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            # Out of memory, most likely, and perhaps in the midst of a change: nothing in it can be trusted.
            self.clear()
            raise
        for tree in self._trees.values():
            # What was held, or a branch, until now may have become a checkpoint.
            tree.thin_out(self.checkpoints.max_bytes)
        self._settle()

    def _settle(self) -> None:
        """After a change: what was freed is given back, as mlx's pool would keep it, and the rest weighed."""
        mx.clear_cache()
        self._weigh()

    # --- what is said of it ----------------------------------------------------------------------

    def _weigh(self) -> None:
        """Bytes by prefix: what several share counts once, for the one that came first."""
        self._kv_bytes: dict[str, int] = {}
        warm_bytes = checkpoint_bytes = 0
        for tree in self._trees.values():
            counted: set[int] = set()
            for key, end in tree.ends.items():
                own = [node for node in end.path() if id(node) not in counted]
                counted.update(map(id, own))
                self._kv_bytes[key] = sum(node.payload.nbytes for node in own)
            warm_bytes += sum(node.payload.nbytes for node in tree.nodes())
            checkpoint_bytes += sum(node.payload.snapshot_bytes for node in tree.checkpoints())
        self.warm_bytes, self.checkpoint_bytes = warm_bytes, checkpoint_bytes
        outlines = {is_quantised: tree.outline() for is_quantised, tree in self._trees.items()}
        self.outlines = MappingProxyType(outlines)
        self.held = MappingProxyType({key: Held(size) for key, size in self._kv_bytes.items()})
