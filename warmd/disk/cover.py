"""What files cover of a path of tokens: what to load, what is still to be written, what is wanted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from warmd.disk.record import Record
from warmd.radix import Tokens, common_length


@dataclass(frozen=True, slots=True)
class Use:
    """A file that belongs to a path.

    Attributes:
        record: The file.
        end: So far it agrees with the path; at its own end when all of it does.
    """

    record: Record
    end: int

    @property
    def has_snapshot(self) -> bool:
        """True when the path goes through the place of the file's snapshot."""
        return self.record.has_snapshot and self.end == self.record.end


@dataclass(frozen=True, slots=True)
class Stretch:
    """A node of the tree, or a part of one: what may be in one file.

    Attributes:
        start: Tokens before it.
        end: Tokens up to its end.
        has_snapshot: True when there is one at its end.
    """

    start: int
    end: int
    has_snapshot: bool


def uses_of(records: Iterable[Record], tokens: Tokens) -> list[Use]:
    """The files with something of a path in them.

    The path before a file is compared by its SHA-256, its own tokens one by one; whoever loads a file
    compares all of them once more.
    """
    possible = [record for record in records if record.start <= len(tokens)]
    keys = _keys_at(tokens, {record.start for record in possible})
    found: list[Use] = []
    for record in possible:
        start = record.start
        if keys[start] != record.above:
            continue
        end = start + common_length(tokens[start : start + len(record.own)], record.own)
        if end > start or not record.own:
            found.append(Use(record, end))
    return found


def _keys_at(tokens: Tokens, positions: Iterable[int]) -> dict[int, str]:
    """`key_of` some beginnings, each token hashed once."""
    digest, done = hashlib.sha256(), 0
    keys: dict[int, str] = {}
    for position in sorted(positions):
        digest.update(tokens[done:position])
        keys[position], done = digest.copy().hexdigest(), position
    return keys


def plan_load(uses: Sequence[Use], done: int, size: int, *, has_rows: bool, is_cuttable: bool) -> list[Use]:
    """Which files to load, in order, to get as far as they go.

    Args:
        uses: All that there are.
        done: So many tokens are held.
        size: Tokens of the path.
        has_rows: The state has a row for each token.
        is_cuttable: It is nothing but rows.

    Returns:
        Files that together hold everything from `done` to the last one's `end`; empty where there is nothing.
    """
    chain = _chain(uses, done) if has_rows else []
    if is_cuttable:
        return chain
    reach = chain[-1].end if chain else done if has_rows else size
    snapshots = [use for use in uses if use.has_snapshot and done < use.end <= reach]
    if not snapshots:
        return []
    last = max(use.end for use in snapshots)
    rows = [use for use in chain if use.record.start < last]
    known = {use.end for use in rows if use.has_snapshot}
    for use in snapshots:
        if use.end not in known:
            known.add(use.end)
            rows.append(use)
    # Rows go on where the last ones ended; a snapshot comes once the rows before it are there.
    return sorted(rows, key=lambda use: (min(use.end, last), use.record.start))


def _chain(uses: Sequence[Use], done: int) -> list[Use]:
    """Files of rows, each going on where the last one ends, for as far as there are any."""
    chain: list[Use] = []
    while True:
        further = [use for use in uses if use.record.start <= done < use.end]
        if not further:
            return chain
        chain.append(max(further, key=lambda use: (use.end, use.record.start)))
        done = chain[-1].end


def next_unwritten(
    uses: Sequence[Use], stretches: Sequence[Stretch], piece_tokens: int, *, has_rows: bool
) -> Stretch | None:
    """The first part of a path that no file covers, within one stretch and no longer than a piece.

    Args:
        uses: All files that there are of the path.
        stretches: The path's, in order.
        piece_tokens: Tokens of a piece at most.
        has_rows: The state has a row for each token.

    Returns:
        What to write; rows of no token where only the snapshot is missing. None when all is there.
    """
    snapshots = {use.end for use in uses if use.has_snapshot}
    covered = sorted((use.record.start, use.end) for use in uses)
    for stretch in stretches:
        lacks_snapshot = stretch.has_snapshot and stretch.end not in snapshots
        if not has_rows:
            if lacks_snapshot:
                return stretch
            continue
        gap = _first_gap(covered, stretch.start, stretch.end)
        if gap is not None:
            end = min(gap[1], gap[0] + piece_tokens)
            return Stretch(gap[0], end, lacks_snapshot and end == stretch.end)
        if lacks_snapshot:
            return Stretch(stretch.end, stretch.end, True)
    return None


def _first_gap(covered: Sequence[tuple[int, int]], start: int, end: int) -> tuple[int, int] | None:
    """The first part of a run that no interval covers; intervals are sorted."""
    for first, last in covered:
        if first > start:
            break
        start = max(start, last)
    if start >= end:
        return None
    return start, min([first for first, _ in covered if first > start] + [end])


def wanted_names(records: Iterable[Record], paths: Iterable[Tokens], identity_digest: str) -> frozenset[str]:
    """The files that some path has a use for."""
    own = [record for record in records if record.identity_digest == identity_digest]
    return frozenset(use.record.name for tokens in paths for use in uses_of(own, tokens))
