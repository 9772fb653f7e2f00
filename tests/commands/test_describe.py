"""What `warmd check --model` makes of rendered entries, a cost and a limit: what the daemon would plan."""

from __future__ import annotations

from collections.abc import Sequence

from warmd.commands.rendered import Needs, RenderedEntry, Rendering, describe, foresee
from warmd.engines.base import Prefix
from warmd.errors import ElsewhereError, RenderError
from warmd.memory.cost import Cost
from warmd.memory.fake import FakeMeter
from warmd.memory.readings import Limit, Memory, ReadingError
from warmd.prompts import Entry

COST = Cost(row_bytes=10, step=1)
PLENTY = foresee(FakeMeter(), Limit(10**9, 0), 0)
"""The scripted process holds nothing but arrays, which do not count: the model is yet to be loaded."""


def entries(*priorities: int) -> list[Entry]:
    """Entries that differ in their priority only."""
    return [
        Entry(f"#{index}", index, (), None, {}, priority, str(index))
        for index, priority in enumerate(priorities)
    ]


def tokens(found: Sequence[RenderedEntry]) -> list[tuple[int | None, int | None, int | None]]:
    """Length, own and shared tokens of each."""
    return [(entry.tokens, entry.own, entry.shared) for entry in found]


def test_what_is_warmed_first_has_all_its_tokens_for_its_own() -> None:
    prefixes: list[Prefix | RenderError] = [
        Prefix((1, 2, 3)),
        RenderError("no"),
        Prefix((1, 2, 4, 5)),
        Prefix((9,)),
        Prefix((1, 2, 4, 6)),
    ]
    found = describe(entries(0, 0, 0, 0, 1), prefixes, COST, PLENTY)
    # The last one comes first by its priority.
    assert tokens(found) == [(3, 1, 2), (None, None, None), (4, 1, 3), (1, 1, 0), (4, 4, 0)]
    assert [entry.kv_bytes for entry in found] == [10, None, 10, 10, 40]
    assert [entry.fits for entry in found] == [True, None, True, True, True]
    assert found[1].problem == "no"


def test_of_equal_prefixes_the_first_in_order_pays() -> None:
    found = describe(entries(0, 1, 0), [Prefix((1, 2))] * 3, COST, PLENTY)
    assert [(entry.own, entry.kv_bytes, entry.fits) for entry in found] == [
        (0, 0, True),
        (2, 20, True),
        (0, 0, True),
    ]


def test_a_snapshot_is_held_for_each_prefix_whatever_they_share() -> None:
    cost = Cost(row_bytes=10, constant=1000, step=1)
    found = describe(entries(0, 0), [Prefix((1, 2)), Prefix((1, 2, 3))], cost, PLENTY)
    assert [entry.kv_bytes for entry in found] == [1020, 1010]


def test_what_does_not_fit_says_so_and_what_is_smaller_may() -> None:
    memory = foresee(FakeMeter(), Limit(1000, 100), 600)
    assert memory.headroom == 300
    big, small = Prefix(tuple(range(20))), Prefix((0, 1, 2))
    found = describe(entries(1, 0), [big, small], COST, memory)
    assert [entry.fits for entry in found] == [False, True]
    # Nothing is shared with what will not be there.
    assert tokens(found) == [(20, 17, 3), (3, 3, 0)]
    reason = "can never fit under the limit of 1 KB: needs 400 B, there would be 300 B"
    assert [entry.shortage for entry in found] == [reason, None]


def test_without_a_cost_only_tokens_are_told() -> None:
    memory = foresee(FakeMeter(), Limit(1, 1), 0)
    expected = (RenderedEntry(2, 2), RenderedEntry(3, 1))
    assert describe(entries(0, 0), [Prefix((1, 2)), Prefix((1, 2, 3))], None, memory) == expected


def test_no_entries_are_nothing() -> None:
    assert describe([], [], COST, PLENTY) == ()


def test_auto_follows_the_machine_and_a_size_is_what_it_is() -> None:
    meter = FakeMeter(physical=1000, others=200, recommended=500)
    auto = foresee(meter, Limit(None, 50), 100)
    assert (auto.limit, auto.headroom, auto.active) == (500, 350, 100)
    assert foresee(meter, Limit(700, 50), 100).headroom == 550


def test_what_the_process_takes_besides_arrays_counts_as_in_the_daemon() -> None:
    memory = foresee(FakeMeter(active=30, pool=5, footprint=135), Limit(700, 50), 200)
    assert (memory.limit, memory.active, memory.headroom) == (700, 200, 350)
    assert Rendering((), Needs(), memory).process_bytes == 100
    unseen = Memory.unknown(ReadingError("the memory", "not now"), Limit(700, 50), warm=0)
    assert Rendering((), Needs(), unseen).process_bytes is None


def test_what_is_for_another_model_is_not_planned() -> None:
    prefixes: list[Prefix | RenderError] = [Prefix((1, 2)), ElsewhereError("other/model")]
    found = describe(entries(0, 5), prefixes, COST, PLENTY)
    assert found == (
        RenderedEntry(2, 2, 20, fits=True),
        RenderedEntry(elsewhere="it is for the model 'other/model', which is not loaded"),
    )
    assert Rendering(found, Needs(), PLENTY).count == 1


def test_a_memory_that_cannot_be_read_leaves_no_room_as_in_the_daemon() -> None:
    meter = FakeMeter()
    meter.fail("not now")
    for size in (None, 10**9):
        memory: Memory = foresee(meter, Limit(size, 0), 0)
        (found,) = describe(entries(0), [Prefix((1,))], COST, memory)
        assert (found.fits, found.shortage) == (False, "cannot read the memory: not now")
