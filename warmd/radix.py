"""A compressed tree over token ids: a node is a run of tokens between two places where paths part or end.

Nodes carry a payload that belongs to their own tokens. The tree moves payloads, and never looks into them.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

S = TypeVar("S")

Tokens: TypeAlias = "array[int]"
"""Token ids, typecode "q": slices of it compare at memcmp's speed."""

NO_TOKENS: Tokens = array("q")


def pack(tokens: Iterable[int]) -> Tokens:
    """Token ids as the tree wants them."""
    return array("q", tokens)


def common_length(left: Sequence[object], right: Sequence[object]) -> int:
    """Length of the longest common beginning of two sequences of the same type."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    # Comparing slices runs at C speed; a loop over 20,000 tokens does not.
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low


class Node(Generic[S]):
    """A run of tokens below its parent's.

    Attributes:
        tokens: The node's own ids, never empty but at the root.
        start: Tokens on the path before it.
        parent: None at the root.
        children: By their first token.
        payload: What belongs to the own tokens.
        key: Names the path from the root to the node's end by its ids, as `Prefix.key` does. A node's hash
            goes on from its parent's, so that naming it costs its own tokens only.
    """

    __slots__ = ("_hash", "children", "key", "parent", "payload", "start", "tokens")

    def __init__(self, tokens: Tokens, parent: Node[S] | None, payload: S) -> None:
        self.tokens = tokens
        self.payload = payload
        self.children: dict[int, Node[S]] = {}
        self.hang(parent)

    @property
    def end(self) -> int:
        """Tokens on the path up to and with it."""
        return self.start + len(self.tokens)

    def hang(self, parent: Node[S] | None) -> None:
        """Become a child of a node whose path and hash are in place."""
        self.parent = parent
        self.start = parent.end if parent is not None else 0
        self._hash: Any = parent._hash.copy() if parent is not None else hashlib.sha256()
        self._hash.update(self.tokens)
        self.key: str = self._hash.hexdigest()
        if parent is not None:
            parent.children[self.tokens[0]] = self

    def path(self) -> list[Node[S]]:
        """The nodes from below the root to this one."""
        nodes: list[Node[S]] = []
        node: Node[S] | None = self
        while node is not None and node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def path_tokens(self) -> Tokens:
        """The ids from the root to the node's end."""
        return sum((node.tokens for node in self.path()), NO_TOKENS)

    def __iter__(self) -> Iterator[Node[S]]:
        """The node and everything below it, parents first."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.children.values())


class RadixTree(Generic[S]):
    """The tree.

    Args:
        root_payload: Of the root, which has no tokens.
    """

    def __init__(self, root_payload: S) -> None:
        self.root: Node[S] = Node(NO_TOKENS, None, root_payload)

    def walk(self, tokens: Tokens) -> tuple[Node[S], int]:
        """Follow `tokens` as far as the tree goes.

        Returns:
            The deepest node that was entered, and how many of the tokens matched: its `end`, or less when
            they part inside of it.
        """
        node, done = self.root, 0
        while done < len(tokens):
            child = node.children.get(tokens[done])
            if child is None:
                break
            # A child found by its first token is only a candidate: the tokens decide.
            matched = common_length(tokens[done : done + len(child.tokens)], child.tokens)
            node, done = child, done + matched
            if matched < len(child.tokens):
                break
        return node, done

    def attach(self, parent: Node[S], tokens: Tokens, payload: S) -> Node[S]:
        """Add a leaf.

        Raises:
            ValueError: There are no tokens, or a child begins with the same one.
        """
        if not tokens or tokens[0] in parent.children:
            raise ValueError("a leaf needs tokens that its siblings do not begin with")
        return Node(tokens, parent, payload)

    def cut(self, node: Node[S], at: int, upper: S, lower: S) -> Node[S]:
        """Split a node.

        Args:
            node: Keeps its identity as the lower part.
            at: Position on the path, strictly inside the node.
            upper: Payload of the tokens before it.
            lower: Payload of the tokens from it on.

        Returns:
            The new node above.
        """
        inside = at - node.start
        if not 0 < inside < len(node.tokens) or node.parent is None:
            raise ValueError("a node is cut strictly inside")
        above = Node(node.tokens[:inside], node.parent, upper)
        node.tokens, node.payload = node.tokens[inside:], lower
        node.hang(above)
        return above

    def fold(self, node: Node[S], payload: S) -> Node[S]:
        """Join a node with its only child, which keeps its identity; returns the child."""
        (child,) = node.children.values()
        if node.parent is None:
            raise ValueError("the root has no tokens to join")
        child.tokens, child.payload = node.tokens + child.tokens, payload
        child.hang(node.parent)
        node.parent = None
        return child

    def remove(self, leaf: Node[S]) -> None:
        """Take a leaf out."""
        if leaf.children or leaf.parent is None:
            raise ValueError("only leaves are removed")
        del leaf.parent.children[leaf.tokens[0]]
        leaf.parent = None


class Sharing:
    """Counts what prefixes have in common."""

    def __init__(self, prefixes: Iterable[Tokens] = ()) -> None:
        self._tree: RadixTree[int] = RadixTree(0)
        for tokens in prefixes:
            self.add(tokens)

    def add(self, tokens: Tokens) -> int:
        """Add a prefix; returns how many of its tokens no other begins with."""
        return self._count(tokens, 1, 0)

    def remove(self, tokens: Tokens) -> int:
        """Take out a prefix that was added; returns how many of its tokens no other begins with."""
        return self._count(tokens, -1, 1)

    def walk(self, tokens: Tokens) -> tuple[Node[int], int]:
        """See `RadixTree.walk`."""
        return self._tree.walk(tokens)

    def end_of(self, tokens: Tokens) -> Node[int]:
        """The node that ends with a prefix, made where there is none; its payload counts who needs it."""
        node, done = self._tree.walk(tokens)
        if done < node.end:
            node = self._tree.cut(node, done, node.payload, node.payload)
        return node if done == len(tokens) else self._tree.attach(node, tokens[done:], 0)

    def _count(self, tokens: Tokens, by: int, alone: int) -> int:
        own = 0
        for node in self.end_of(tokens).path():
            own += len(node.tokens) if node.payload == alone else 0
            node.payload += by
        return own


def branch_points(prefixes: Sequence[Tokens]) -> list[frozenset[int]]:
    """Where each prefix parts from another, or another ends on its way.

    Returns:
        For each prefix the lengths, more than 0 and less than its own, of what it has in common with others.
    """
    sharing = Sharing()
    ends = [sharing.end_of(tokens) for tokens in prefixes]
    # A node begins where paths part or one of them ends.
    return [frozenset(node.start for node in end.path()) - {0} for end in ends]
