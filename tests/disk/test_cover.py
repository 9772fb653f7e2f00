"""What files cover of a path."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.disk.made import IDENTITY, make_record
from warmd.disk.cover import Stretch, Use, next_unwritten, plan_load, uses_of, wanted_names
from warmd.disk.identity import digest_of
from warmd.disk.record import Record
from warmd.radix import pack

PATH = pack(range(100))
OTHER = [*range(60), *range(200, 240)]


def load(
    records: Sequence[Record], done: int = 0, *, has_rows: bool = True, is_cuttable: bool = True
) -> list[tuple[int, int]]:
    """Start of each file that is loaded, and how far it is used."""
    uses = uses_of(records, PATH)
    plan = plan_load(uses, done, len(PATH), has_rows=has_rows, is_cuttable=is_cuttable)
    return [(use.record.start, use.end) for use in plan]


def test_a_file_is_used_as_far_as_it_agrees() -> None:
    whole, part, none = make_record(PATH, 40), make_record(OTHER, 40), make_record([7, *PATH[1:]], 40)
    assert [Use(whole, 100), Use(part, 60)] == uses_of([whole, part, none], PATH)


def test_a_snapshot_counts_only_where_all_agrees() -> None:
    records = [make_record(PATH[:50], has_snapshot=True), make_record(OTHER, 50, has_snapshot=True)]
    assert [use.has_snapshot for use in uses_of(records, PATH)] == [True, False]


def test_rows_are_loaded_one_after_the_other_as_far_as_they_go() -> None:
    records = [make_record(PATH[:30]), make_record(PATH[:70], 30), make_record(PATH, 80)]
    assert load(records) == [(0, 30), (30, 70)]
    assert load(records, done=40) == [(30, 70)]
    assert load(records, done=85) == [(80, 100)]
    assert load(records, done=75) == []


def test_the_file_that_goes_furthest_is_taken() -> None:
    records = [make_record(PATH[:30]), make_record(PATH[:90]), make_record(PATH[:95], 20)]
    assert load(records) == [(0, 90), (20, 95)]


def test_what_cannot_be_cut_is_loaded_up_to_the_last_snapshot_that_rows_lead_to() -> None:
    records = [
        make_record(PATH[:30], has_snapshot=True),
        make_record(PATH[:50], 30, has_snapshot=True),
        make_record(PATH[:80], 50),
        make_record(PATH, 90, has_snapshot=True),
    ]
    assert load(records, is_cuttable=False) == [(0, 30), (30, 50)]
    assert load(records, done=30, is_cuttable=False) == [(30, 50)]
    assert load(records, done=50, is_cuttable=False) == []
    assert load([make_record(PATH)], is_cuttable=False) == []


def test_a_snapshot_in_the_midst_of_rows_is_loaded_with_them() -> None:
    records = [make_record(PATH), make_record(PATH[:40], 40, has_snapshot=True)]
    assert sorted(load(records, is_cuttable=False)) == [(0, 100), (40, 40)]


def test_without_rows_a_snapshot_is_enough() -> None:
    records = [make_record(PATH[:50], 30, has_snapshot=True), make_record(OTHER, has_snapshot=True)]
    assert load(records, has_rows=False, is_cuttable=False) == [(30, 50)]


# --- writing -----------------------------------------------------------------------------------------


def unwritten(
    records: Sequence[Record], nodes: Sequence[Stretch], piece: int = 1000, *, has_rows: bool = True
) -> Stretch | None:
    return next_unwritten(uses_of(records, PATH), nodes, piece, has_rows=has_rows)


def test_what_no_file_covers_is_written_node_by_node() -> None:
    nodes = [Stretch(0, 40, False), Stretch(40, 100, False)]
    assert Stretch(0, 40, False) == unwritten([], nodes)
    assert Stretch(0, 25, False) == unwritten([], nodes, piece=25)
    assert Stretch(60, 100, False) == unwritten([make_record(OTHER)], nodes)
    assert Stretch(30, 40, False) == unwritten([make_record(PATH[:30]), make_record(PATH, 50)], nodes)
    assert Stretch(40, 50, False) == unwritten([make_record(PATH[:40]), make_record(PATH, 50)], nodes)
    assert unwritten([make_record(PATH)], nodes) is None


def test_a_snapshot_is_written_with_the_rows_before_it_or_alone() -> None:
    nodes = [Stretch(0, 40, True), Stretch(40, 100, False)]
    assert Stretch(0, 40, True) == unwritten([], nodes)
    assert Stretch(0, 30, False) == unwritten([], nodes, piece=30)
    assert Stretch(30, 40, True) == unwritten([make_record(PATH[:30])], nodes, piece=30)
    assert Stretch(40, 40, True) == unwritten([make_record(PATH)], nodes)
    there = [make_record(PATH), make_record(PATH[:40], 40, has_snapshot=True)]
    assert unwritten(there, nodes) is None


def test_without_rows_each_snapshot_is_a_file() -> None:
    nodes = [Stretch(0, 40, True), Stretch(40, 100, True)]
    assert Stretch(0, 40, True) == unwritten([], nodes, has_rows=False)
    there = [make_record(PATH[:40], has_snapshot=True)]
    assert Stretch(40, 100, True) == unwritten(there, nodes, has_rows=False)


@st.composite
def some_nodes(draw: st.DrawFn) -> list[Stretch]:
    edges = sorted(draw(st.sets(st.integers(1, 99), max_size=5)) | {0, 100})
    snapshots = [draw(st.booleans()) for _ in edges]
    return [
        Stretch(start, end, has_snapshot)
        for start, end, has_snapshot in zip(edges, edges[1:], snapshots, strict=False)
    ]


@given(some_nodes(), st.integers(1, 40), st.booleans())
def test_all_is_written_once_and_all_can_be_loaded_again(
    nodes: list[Stretch], piece: int, has_rows: bool
) -> None:
    records: list[Record] = []
    covered = 0
    while (stretch := unwritten(records, nodes, piece, has_rows=has_rows)) is not None:
        assert stretch.end - stretch.start <= piece or not has_rows
        covered += stretch.end - stretch.start
        record = make_record(PATH[: stretch.end], stretch.start, has_snapshot=stretch.has_snapshot)
        records.append(record)
        assert len(records) < 300
    if has_rows:
        assert covered == 100
        assert load(records)[-1][1] == 100
    snapshots = [node.end for node in nodes if node.has_snapshot]
    found = load(records, has_rows=has_rows, is_cuttable=False)
    assert max((end for _, end in found), default=0) >= max(snapshots, default=0)
    assert bool(found) == bool(snapshots)


# --- what is wanted ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "is_wanted"),
    [
        (make_record(PATH[:50]), True),
        (make_record(OTHER, 50), True),
        (make_record(OTHER, 60), False),
        (make_record(PATH[:50], 50, has_snapshot=True), True),
        (make_record(PATH[:50], identity={**IDENTITY, "mlx": "0.33"}), False),
    ],
)
def test_a_file_is_wanted_when_some_path_has_a_use_for_it(record: Record, is_wanted: bool) -> None:
    found = wanted_names([record], [pack([1, 2]), PATH], digest_of(IDENTITY))
    assert found == ({record.name} if is_wanted else set())
