"""Laws of the plan, and the examples that shaped them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from warmd.plan import Drop, Plan, Wanted, make_plan

KEYS = st.sampled_from("abcdefgh")
HELD = st.frozensets(KEYS)


def length(key: str) -> int:
    """Tokens of a key: equal keys are equal tokens."""
    return ord(key)


@st.composite
def documents(draw: st.DrawFn) -> list[Wanted]:
    """The wanted prefixes of a document; some entries share a key."""
    entries = draw(st.lists(st.tuples(KEYS, st.integers(-2, 2)), max_size=8))
    return [
        Wanted(f"#{index}", key, length(key), priority, index)
        for index, (key, priority) in enumerate(entries)
    ]


PREVIOUS = st.dictionaries(st.sampled_from([f"#{index}" for index in range(8)]), KEYS)


@given(documents(), HELD, HELD, HELD)
def test_keep_warm_and_defer_part_the_wanted_keys(
    wanted: list[Wanted], held: frozenset[str], waiting: frozenset[str], in_flight: frozenset[str]
) -> None:
    plan = make_plan(wanted, held, waiting=waiting, in_flight=in_flight)
    parts = [*plan.keep, *(item.key for item in plan.warm), *(item.key for item in plan.defer)]
    assert sorted({item.key for item in wanted}) == sorted(parts)


@given(documents(), HELD, HELD, PREVIOUS)
def test_keep_and_drop_part_the_held_keys(
    wanted: list[Wanted], held: frozenset[str], in_flight: frozenset[str], previous: dict[str, str]
) -> None:
    plan = make_plan(wanted, held, in_flight=in_flight, previous=previous)
    assert sorted(held | in_flight) == sorted([*plan.keep, *(drop.key for drop in plan.drop)])


@given(documents(), HELD, HELD)
def test_what_waits_is_deferred_and_the_rest_is_warmed(
    wanted: list[Wanted], held: frozenset[str], waiting: frozenset[str]
) -> None:
    plan = make_plan(wanted, held, waiting=waiting)
    missing = {item.key for item in wanted} - held
    expected = (missing - waiting, missing & waiting)
    assert expected == ({item.key for item in plan.warm}, {item.key for item in plan.defer})


@given(documents(), HELD, st.randoms(use_true_random=False))
def test_order_is_priority_then_file_order_whatever_order_was_given(
    wanted: list[Wanted], held: frozenset[str], random: object
) -> None:
    shuffled = sorted(wanted, key=lambda _: random.random())  # type: ignore[attr-defined]
    plan = make_plan(shuffled, held)
    assert sorted(plan.warm, key=lambda item: (-item.priority, item.index)) == list(plan.warm)
    assert make_plan(wanted, held) == plan


@given(documents())
def test_equal_keys_are_planned_once_for_the_first_of_their_entries(wanted: list[Wanted]) -> None:
    ordered = sorted(wanted, key=lambda item: (-item.priority, item.index))
    first = {item.key: item for item in reversed(ordered)}
    plan = make_plan(wanted, ())
    assert first == {item.key: item for item in plan.warm}
    assert len(first) == len(plan.warm)


@given(documents(), st.permutations(range(8)))
def test_a_renamed_and_reordered_document_plans_nothing(wanted: list[Wanted], places: list[int]) -> None:
    held = {item.key for item in wanted}
    previous = {item.name: item.key for item in wanted}
    cosmetic = [replace(item, name=f"new {item.name}", index=places[item.index]) for item in wanted]
    plan = make_plan(cosmetic, held, previous=previous)
    assert (plan.warm, plan.drop, plan.defer) == ((), (), ())


@given(documents(), HELD, HELD, HELD, PREVIOUS)
def test_a_drop_waits_only_for_a_key_that_is_still_to_become_warm(
    wanted: list[Wanted],
    held: frozenset[str],
    waiting: frozenset[str],
    in_flight: frozenset[str],
    previous: dict[str, str],
) -> None:
    plan = make_plan(wanted, held, waiting=waiting, in_flight=in_flight, previous=previous)
    coming = {item.key for item in (*plan.warm, *plan.defer)} | (in_flight & {item.key for item in wanted})
    assert set() == {drop.after for drop in plan.drop if drop.after is not None} - coming


@given(documents(), HELD, HELD, PREVIOUS)
def test_a_prefix_is_freed_at_once_only_if_none_of_its_entries_still_lacks_its_new_one(
    wanted: list[Wanted], held: frozenset[str], in_flight: frozenset[str], previous: dict[str, str]
) -> None:
    plan = make_plan(wanted, held, in_flight=in_flight, previous=previous)
    lacking = {previous.get(item.name) for item in wanted if item.key not in held - in_flight}
    assert set() == {drop.key for drop in plan.drop if drop.after is None} & lacking


@given(documents(), HELD)
def test_once_the_plan_is_carried_out_there_is_nothing_left_to_do(
    wanted: list[Wanted], held: frozenset[str]
) -> None:
    plan = make_plan(wanted, held)
    after = {*plan.keep, *(item.key for item in plan.warm)}
    again = make_plan(wanted, after)
    assert (again.warm, again.drop, again.defer) == ((), (), ())


def test_an_edited_entry_keeps_its_old_prefix_until_the_new_one_is_warm() -> None:
    new = Wanted("coder", "new", 7)
    expected = Plan(keep=(), warm=(new,), drop=(Drop("old", after="new"),), defer=())
    assert expected == make_plan([new], {"old"}, previous={"coder": "old"})


def test_an_edited_entry_keeps_its_old_prefix_while_the_new_one_is_being_warmed() -> None:
    new = Wanted("coder", "new", 7)
    expected = Plan(keep=("new",), warm=(), drop=(Drop("old", after="new"),), defer=())
    assert expected == make_plan([new], {"old"}, in_flight={"new"}, previous={"coder": "old"})


def test_an_edited_entry_keeps_its_old_prefix_while_the_new_one_waits_to_be_tried_again() -> None:
    new = Wanted("coder", "new", 7)
    expected = Plan(keep=(), warm=(), drop=(Drop("old", after="new"),), defer=(new,))
    assert expected == make_plan([new], {"old"}, waiting={"new"}, previous={"coder": "old"})


def test_a_prefix_that_two_entries_shared_serves_until_the_last_of_them_is_warm() -> None:
    later, first = Wanted("b", "b2", 1, index=1), Wanted("a", "a2", 1, index=0)
    expected = Plan(keep=(), warm=(first, later), drop=(Drop("old", after="b2"),), defer=())
    assert expected == make_plan([later, first], {"old"}, previous={"a": "old", "b": "old"})


def test_of_two_replacements_the_one_in_flight_is_not_waited_for() -> None:
    first, flying = Wanted("a", "a2", 1, index=0), Wanted("b", "b2", 1, index=1)
    expected = Plan(keep=("b2",), warm=(first,), drop=(Drop("old", after="a2"),), defer=())
    assert expected == make_plan(
        [first, flying], {"old"}, in_flight={"b2"}, previous={"a": "old", "b": "old"}
    )


def test_a_removed_entry_is_freed_at_once() -> None:
    expected = Plan(keep=(), warm=(), drop=(Drop("old"),), defer=())
    assert expected == make_plan([], {"old"}, previous={})
