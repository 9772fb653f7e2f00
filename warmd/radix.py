"""A compressed tree over token ids: a node is a run of tokens between two places where paths part or end.

Nodes carry a payload that belongs to their own tokens. The tree moves payloads, and never looks into them.
"""

from __future__ import annotations

import contextlib
import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    """

    __slots__ = ("_hash", "children", "parent", "payload", "start", "tokens")

    def __init__(self, tokens: Tokens, parent: Node[S] | None, payload: S) -> None:
        self.tokens = tokens
        self.payload = payload
        self.children: dict[int, Node[S]] = {}
        self.hang(parent)

    @property
    def end(self) -> int:
        """Tokens on the path up to and with it."""
        return self.start + len(self.tokens)

    @property
    def key(self) -> str:
        """Names the path from the root to the node's end by its ids, as `Prefix.key` does.

        A node's hash goes on from its parent's, so that naming it costs its own tokens only.
        """
        unnamed: list[Node[S]] = []
        node: Node[S] | None = self
        while node is not None and node._hash is None:
            unnamed.append(node)
            node = node.parent
        chained = node._hash if node is not None else hashlib.sha256()
        for below in reversed(unnamed):
            chained = chained.copy()
            chained.update(below.tokens)
            below._hash = chained
        return str(chained.hexdigest())

    def hang(self, parent: Node[S] | None) -> None:
        """Become a child of a node whose path is in place."""
        self.parent = parent
        self.start = parent.end if parent is not None else 0
        self._hash: Any = None
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
        # Not added up one by one: the first ones would be copied again and again.
        found = array("q")
        for node in self.path():
            found.extend(node.tokens)
        return found

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
    """Counts what prefixes have in common.

    Args:
        prefixes: To begin with.
    """

    def __init__(self, prefixes: Iterable[Tokens] = ()) -> None:
        self._tree: RadixTree[int] = RadixTree(0)
        self._named: dict[str, Tokens] = {}
        for tokens in prefixes:
            self.add(tokens)

    def become(self, prefixes: Mapping[str, Tokens]) -> None:
        """Count these, by name, in place of those of the last call: only what differs takes time."""
        for name in self._named.keys() - prefixes.keys():
            self.remove(self._named.pop(name))
        for name in prefixes.keys() - self._named.keys():
            self._named[name] = prefixes[name]
            self.add(prefixes[name])

    def add(self, tokens: Tokens) -> int:
        """Add a prefix; returns how many of its tokens no other begins with."""
        node, done = self._tree.walk(tokens)
        own = len(tokens) - done
        if done < node.end:
            node = self._tree.cut(node, done, node.payload, node.payload)
        if own:
            node = self._tree.attach(node, tokens[done:], 0)
        for above in node.path():
            above.payload += 1
        return own

    def remove(self, tokens: Tokens) -> int:
        """Take out a prefix that was added; returns how many of its tokens no other begins with."""
        node, _ = self._tree.walk(tokens)
        own = 0
        for above in reversed(node.path()):
            above.payload -= 1
            if above.payload == 0:
                own += len(above.tokens)
                self._tree.remove(above)
            elif [child.payload for child in above.children.values()] == [above.payload]:
                # Nothing parts or ends here any more.
                self._tree.fold(above, above.payload)
        return own

    @contextlib.contextmanager
    def trial(self) -> Iterator[Trial]:
        """Add and remove for the time of a block: all is as before after it."""
        trial = Trial(self)
        try:
            yield trial
        finally:
            trial.undo()

    def walk(self, tokens: Tokens) -> tuple[Node[int], int]:
        """See `RadixTree.walk`; the payloads say how many prefixes go through a node."""
        return self._tree.walk(tokens)

    def reach(self, tokens: Tokens, *, without: Sharing | None = None) -> int:
        """How many of the tokens a prefix begins with.

        Args:
            tokens: Any.
            without: Prefixes that do not count; each was added here as well.
        """
        node, done = self._tree.walk(tokens)
        for above in reversed(node.path()):
            end = min(done, above.end)
            if without is None or above.payload > without.count(tokens[:end]):
                return end
        return 0

    def count(self, tokens: Tokens) -> int:
        """How many prefixes begin with all of these tokens (at least one)."""
        node, done = self._tree.walk(tokens)
        return node.payload if done == len(tokens) else 0

    def branch_points(self, tokens: Tokens) -> frozenset[int]:
        """Where a prefix that was added parts from another, or another ends on its way.

        Returns:
            The lengths, more than 0 and less than its own, of what it has in common with others. Of other
            tokens those on their way, as far as prefixes begin with them.
        """
        node, _ = self._tree.walk(tokens)
        # A node begins where paths part or one of them ends.
        return frozenset(above.start for above in node.path()) - {0}


class Trial:
    """Changes to what is counted that can be undone."""

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self._done: list[tuple[Callable[[Tokens], int], Tokens]] = []

    def add(self, tokens: Tokens) -> int:
        """See `Sharing.add`."""
        self._done.append((self._sharing.remove, tokens))
        return self._sharing.add(tokens)

    def remove(self, tokens: Tokens) -> int:
        """See `Sharing.remove`."""
        self._done.append((self._sharing.add, tokens))
        return self._sharing.remove(tokens)

    def undo(self) -> None:
        """Take all of it back."""
        while self._done:
            change, tokens = self._done.pop()
            change(tokens)
