"""What a model's state costs: bytes by tokens, as measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """State that grows with the tokens up to a point.

    Attributes:
        bytes_per_token: While it grows.
        tokens: Where it stops; None where it never does.
    """

    bytes_per_token: int
    tokens: int | None

    def bytes(self, tokens: int) -> int:
        """At so many tokens."""
        return self.bytes_per_token * (tokens if self.tokens is None else min(tokens, self.tokens))


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes of one model's state.

    Attributes:
        row_bytes: For every token, of the state that can be cut and so is shared between prefixes.
        windows: State that cannot be cut and grows, held once for each snapshot.
        constant: State that cannot be cut and does not grow, held once for each snapshot.
        largest_share: The largest layer's part of everything, 0 to 1: so much is held twice for a moment when
            state changes hands.
        quantised_from: Length from which on a prefix's rows are held quantised; None where they never are.
        quantised_row_bytes: For every token of such a prefix.
        transient: What computing a chunk takes besides, as measured last; 0 before the first.
        step: Caches grow by blocks of so many tokens while they are being filled.
    """

    row_bytes: int
    windows: tuple[Window, ...] = ()
    constant: int = 0
    largest_share: float = 1.0
    quantised_from: int | None = None
    quantised_row_bytes: int = 0
    transient: int = 0
    step: int = 256

    @property
    def is_cuttable(self) -> bool:
        """True when a prefix costs its own tokens only, whatever it shares with others."""
        return not self.windows and not self.constant

    def snapshot(self, tokens: int) -> int:
        """One snapshot at so many tokens."""
        return self.constant + sum(window.bytes(tokens) for window in self.windows)

    def kept(self, own: int, tokens: int) -> int:
        """What holding one more prefix takes.

        Args:
            own: Tokens that no other held prefix begins with.
            tokens: Length of the prefix.
        """
        return self._row_bytes_at(tokens) * own + self.snapshot(tokens)

    def working(self, tokens: int) -> int:
        """A cache that is being filled up to so many tokens, before it changes hands."""
        rows = self._row_bytes_at(tokens) * -(-tokens // self.step) * self.step
        if self.quantised_from is not None:
            rows = max(rows, self.row_bytes * min(tokens, self.quantised_from))
        return rows + self.snapshot(tokens)

    def _row_bytes_at(self, tokens: int) -> int:
        is_quantised = self.quantised_from is not None and tokens >= self.quantised_from
        return self.quantised_row_bytes if is_quantised else self.row_bytes

    def peak(self, tokens: int) -> int:
        """The most that warming so many tokens takes for a moment, besides what is held already."""
        working = self.working(tokens)
        return working + max(self.transient, int(working * self.largest_share))
