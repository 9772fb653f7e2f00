"""What changed between two documents is counted so that the counts add up."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmd.prompts import Changes, Document, Entry, diff


def document(*entries: tuple[str | None, str]) -> Document:
    """A document from names (None: unnamed) and digests."""
    return Document(
        path=Path("/prompts.json"),
        sha256="",
        digest="",
        entries=tuple(
            Entry(name or f"#{index}", index, ({"role": "user", "content": ""},), None, {}, 0, digest)
            for index, (name, digest) in enumerate(entries)
        ),
        files=(Path("/prompts.json"),),
    )


NAMED = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("xyz")).map(
    lambda found: list(found.items())
)
UNNAMED = st.lists(st.tuples(st.none(), st.sampled_from("xyz")), max_size=6)
DOCUMENTS = (
    st.tuples(NAMED, UNNAMED)
    .flatmap(lambda parts: st.permutations([*parts[0], *parts[1]]))
    .map(lambda entries: document(*entries))
)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (document(), document(), Changes(0, 0, 0, 0)),
        (document(("a", "x")), document(("a", "x")), Changes(0, 0, 0, unchanged=1)),
        (document(("a", "x")), document(("a", "y")), Changes(0, edited=1, removed=0, unchanged=0)),
        (document(("a", "x")), document(("b", "x")), Changes(added=1, edited=0, removed=1, unchanged=0)),
        (document((None, "x")), document((None, "y"), (None, "x")), Changes(1, 0, 0, unchanged=1)),
        (document((None, "x"), (None, "y")), document((None, "y"), (None, "x")), Changes(0, 0, 0, 2)),
        (document((None, "x"), (None, "y")), document((None, "z")), Changes(0, 1, 1, 0)),
        (document((None, "x"), (None, "x")), document((None, "x")), Changes(0, 0, 1, 1)),
    ],
)
def test_entries_are_matched_by_name_or_by_content(old: Document, new: Document, expected: Changes) -> None:
    assert expected == diff(old, new)


def test_everything_in_a_first_document_is_added() -> None:
    assert Changes(added=2, edited=0, removed=0, unchanged=0) == diff(None, document(("a", "x"), (None, "x")))


@given(DOCUMENTS, DOCUMENTS)
def test_the_counts_add_up(old: Document, new: Document) -> None:
    changes = diff(old, new)
    assert len(new.entries) == changes.added + changes.edited + changes.unchanged
    assert len(old.entries) == changes.removed + changes.edited + changes.unchanged


@given(DOCUMENTS)
def test_nothing_changes_between_a_document_and_itself(same: Document) -> None:
    assert Changes(0, 0, 0, unchanged=len(same.entries)) == diff(same, same)


@given(DOCUMENTS, DOCUMENTS)
def test_the_way_back_swaps_added_and_removed(old: Document, new: Document) -> None:
    there, back = diff(old, new), diff(new, old)
    assert Changes(there.removed, there.edited, there.added, there.unchanged) == back
