"""What warming some prefixes will take, told from what is held and on disk. Pure: on any thread.

It follows what `Warming` does, with places in the trees in place of state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from warmd.engines.base import Foreseen, Prefix
from warmd.engines.mlx_lm.choosing import requests_for
from warmd.engines.mlx_lm.intake import Request
from warmd.engines.mlx_lm.keeper import Keeper
from warmd.engines.mlx_lm.loading import Choice
from warmd.engines.mlx_lm.needs import MIN_SHARED
from warmd.engines.mlx_lm.packing import Form
from warmd.engines.mlx_lm.state import Outline
from warmd.engines.mlx_lm.store import WarmStore
from warmd.memory.cost import Cost
from warmd.radix import RadixTree, Sharing, Tokens


class Places:
    """Where prefills can go on from in one tree.

    Args:
        outline: What there is to begin with.
    """

    def __init__(self, outline: Outline) -> None:
        self._is_cuttable = outline.is_cuttable
        self._floor = outline.floor
        self._tree: RadixTree[bool] = RadixTree(False)
        nodes = [self._tree.root]
        for above, tokens, has_snapshot in outline.nodes:
            nodes.append(self._tree.attach(nodes[above], tokens, has_snapshot))

    def match(self, tokens: Tokens) -> int:
        """See `KVTree.match`."""
        node, done = self._tree.walk(tokens)
        if self._is_cuttable:
            return done if done >= self._floor else 0
        return max((above.end for above in node.path() if above.payload and above.end <= done), default=0)

    def add(self, tokens: Tokens, snapshots: Collection[int]) -> None:
        """A path, with snapshots at some positions."""
        node, done = self._tree.walk(tokens)
        if done < node.end:
            node = self._tree.cut(node, done, False, node.payload)
        if done < len(tokens):
            self._tree.attach(node, tokens[done:], False)
        for position in snapshots:
            if position >= self._floor:
                node, _ = self._tree.walk(tokens[:position])
                if position < node.end:
                    node = self._tree.cut(node, position, False, node.payload)
                node.payload = True


@dataclass(frozen=True, slots=True)
class Foresight:
    """What there is before.

    Attributes:
        outlines: Of the plain tree and of the quantised one, by whether it is quantised.
        quantised_from: The least length of a prefix that is held quantised; None where none is.
        forms: How state is kept that is on disk; empty where none is.
        find: What the disk has for requests.
    """

    outlines: Mapping[bool, Outline]
    quantised_from: int | None
    forms: Mapping[bool, Form]
    find: Callable[[Sequence[Request]], Choice]

    def foresee(self, prefixes: Sequence[Prefix]) -> list[Foreseen]:
        """What each takes when they are warmed in this order, all of them declared before.

        Where state cannot be cut, a beginning of fewer than `MIN_SHARED` tokens that a stopped warming has
        left may be let go before its turn: then these are prefilled once more.
        """
        sharing = Sharing(prefix.packed for prefix in prefixes)
        places = {is_quantised: Places(outline) for is_quantised, outline in self.outlines.items()}
        return [self._warm(prefix.packed, places, sharing) for prefix in prefixes]

    def _warm(self, tokens: Tokens, places: Mapping[bool, Places], sharing: Sharing) -> Foreseen:
        loaded = self._load(tokens, places)
        begun = max(own.match(tokens) for own in places.values())
        points = (point for point in sharing.branch_points(tokens) if point >= max(MIN_SHARED, begun + 1))
        is_quantised = self.quantised_from is not None and len(tokens) >= self.quantised_from
        places[is_quantised].add(tokens, {*points, len(tokens)})
        return Foreseen(len(tokens) - begun, min(loaded, begun))

    def _load(self, tokens: Tokens, places: Mapping[bool, Places]) -> int:
        """How many tokens come from disk."""

        def held(tokens: Tokens, is_quantised: bool) -> int:
            return places[is_quantised].match(tokens)

        requests = requests_for(tokens, self.forms, self.quantised_from, held)
        if not requests:
            return 0
        choice = self.find(requests)
        request, end = choice.request, choice.end
        if end <= request.done:
            return 0
        snapshots = {use.end for use in choice.uses if use.has_snapshot and use.end <= end}
        places[request.form.is_quantised].add(request.tokens[:end], snapshots)
        return end - request.done


def foresight(store: WarmStore, keeper: Keeper | None, cost: Cost | None) -> Foresight:
    """What there is now; `cost` is the model's where it is known."""
    first = store.quantised_from
    is_cuttable = cost is None or cost.is_cuttable
    none_yet = {False: Outline(is_cuttable, 1), True: Outline(is_cuttable, first or 1)}
    if keeper is None:
        return Foresight({**none_yet, **store.outlines}, first, {}, lambda requests: Choice(requests[0], ()))
    return Foresight({**none_yet, **store.outlines}, first, keeper.forms, keeper.find)
