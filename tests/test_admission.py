"""What fits into memory, what is put off, and what makes room: laws, and the examples that shaped them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmd.admission import (
    FOR_LIMIT,
    FOR_PRIORITY,
    FOR_REPLACEMENT,
    FOR_SYSTEM,
    Room,
    admit,
    entry_costs,
    is_too_much,
)
from warmd.engines.base import Prefix
from warmd.memory.cost import Cost
from warmd.memory.readings import Memory
from warmd.plan import Drop, Plan, Wanted, make_plan

EXACT = Cost(1, largest_share=0.0, step=1)
"""A byte a token, and nothing for working: bytes are tokens."""


def memory(headroom: int, *, warm: int = 0, pressure: int = 1, reserve: int = 0, cache: int = 0) -> Memory:
    """What there is; the limit is whatever makes it so."""
    return Memory(1000, 1000 - headroom, cache, warm, headroom, pressure, reserve)


def prefix(name: str, size: int, shared: int = 0) -> Prefix:
    """`size` tokens, the first `shared` of which every prefix has."""
    own = [1000 + ord(name[0]) * 1000 + index for index in range(size - shared)]
    return Prefix((*range(shared), *own))


class Case:
    """Entries by name, and the plan for them."""

    def __init__(self, *entries: tuple[str, int, int], shared: int = 0) -> None:
        self.prefixes = {name: prefix(name, size, shared) for name, size, _ in entries}
        self.wanted = [
            Wanted(name, self.key(name), size, priority, index)
            for index, (name, size, priority) in enumerate(entries)
        ]

    def key(self, name: str) -> str:
        return self.prefixes[name].key

    def admit(
        self,
        now: Memory,
        held: Collection[str] = (),
        *,
        previous: dict[str, str] | None = None,
        cost: Cost | None = EXACT,
    ) -> Plan:
        keys = [self.key(name) for name in held]
        old = {name: self.key(key) for name, key in (previous or {}).items()}
        wanted = [item for item in self.wanted if item.name not in (previous or {}).values()]
        plan = make_plan(wanted, keys, previous=old)
        by_key = {item.key: item for item in self.prefixes.values()}
        return admit(plan, wanted, Room(now, cost, by_key, keys))

    def names(self, keys: Collection[str]) -> list[str]:
        return [name for name in self.prefixes if self.key(name) in keys]


def warmed(plan: Plan) -> list[str]:
    return [item.name for item in plan.warm]


def deferred(plan: Plan) -> list[str]:
    return [item.name for item in plan.defer]


def test_priority_and_then_file_order_decide_and_a_smaller_one_fills_the_gap() -> None:
    case = Case(("a", 60, 0), ("b", 50, 0), ("c", 40, 0), ("d", 50, 9))
    plan = case.admit(memory(150))
    assert (warmed(plan), deferred(plan)) == (["d", "a", "c"], ["b"])
    assert plan.short[case.key("b")].needed == 50
    assert plan.short[case.key("b")].available == 40
    assert plan.short[case.key("b")].reason == "needs 50 B, 40 B are available"


def test_what_is_shared_is_paid_once() -> None:
    case = Case(("a", 50, 0), ("b", 50, 0), ("c", 50, 0), shared=40)
    # The last one needs a working copy of all its 50 tokens beside the 60 that are held by then.
    assert warmed(case.admit(memory(110))) == ["a", "b", "c"]
    assert warmed(case.admit(memory(109))) == ["a", "b"]


def test_what_is_held_is_shared_too() -> None:
    case = Case(("a", 50, 0), ("b", 50, 0), shared=40)
    # The working copy of a whole prefix has to fit all the same.
    assert warmed(case.admit(memory(50), ["a"])) == ["b"]
    assert warmed(case.admit(memory(49), ["a"])) == []


def test_the_pool_is_room() -> None:
    case = Case(("a", 50, 0))
    assert warmed(case.admit(memory(0, cache=50))) == ["a"]


def test_what_is_too_large_for_ever_says_so() -> None:
    case = Case(("a", 1200, 0))
    (short,) = case.admit(memory(900, warm=100)).short.values()
    assert short.reason == "can never fit under the limit of 1 KB: needs 1.2 KB, there would be 1 KB"


def test_lower_priority_makes_room_but_only_where_that_is_enough() -> None:
    case = Case(("low", 50, 0), ("middle", 50, 1), ("high", 90, 2))
    held = ["low", "middle"]
    plan = case.admit(memory(20, warm=100), held)
    assert warmed(plan) == ["high"]
    assert {drop.key: drop.reason for drop in plan.drop} == dict.fromkeys(map(case.key, held), FOR_PRIORITY)
    assert (plan.keep, deferred(plan)) == ((), ["middle", "low"])
    plan = case.admit(memory(40, warm=100), held)
    assert [case.names([drop.key]) for drop in plan.drop] == [["low"]]
    assert (
        deferred(case.admit(memory(-20, warm=100), held))[-1:] != ["high"]
        or not case.admit(memory(-20, warm=100), held).drop
    )


def test_equal_priority_makes_no_room() -> None:
    case = Case(("new", 50, 0), ("held", 50, 0))
    plan = case.admit(memory(10, warm=50), ["held"])
    assert (deferred(plan), plan.drop) == (["new"], ())


def test_the_old_prefix_goes_first_only_where_there_is_no_room_for_both() -> None:
    case = Case(("new", 50, 0), ("old", 50, 0))
    both = case.admit(memory(50, warm=50), ["old"], previous={"new": "old"})
    assert both.drop == (Drop(case.key("old"), after=case.key("new")),)
    first = case.admit(memory(10, warm=50), ["old"], previous={"new": "old"})
    assert (warmed(first), first.drop) == (["new"], (Drop(case.key("old"), None, FOR_REPLACEMENT),))
    neither = case.admit(memory(-10, warm=50, reserve=100), ["old"], previous={"new": "old"})
    assert (deferred(neither), neither.drop) == (["new"], (Drop(case.key("old"), after=case.key("new")),))


@pytest.mark.parametrize("pressure", [2, 4])
def test_nothing_is_begun_under_pressure(pressure: int) -> None:
    plan = Case(("a", 5, 0)).admit(memory(900, pressure=pressure))
    assert (plan.warm, deferred(plan)) == ((), ["a"])


def test_a_reading_that_failed_is_never_taken_for_room() -> None:
    now = Memory(1000, 0, 0, 50, 0, 0, error="cannot read the memory: gone")
    plan = Case(("a", 5, 0), ("b", 5, 0)).admit(now, ["b"])
    assert (plan.warm, deferred(plan), plan.drop) == ((), ["a"], ())
    assert [short.reason for short in plan.short.values()] == ["cannot read the memory: gone"]


def test_critical_pressure_frees_half_from_the_lowest_on() -> None:
    case = Case(("a", 40, 5), ("b", 30, 0), ("c", 30, 0))
    plan = case.admit(memory(500, warm=100, pressure=4), ["a", "b", "c"])
    assert [(case.names([drop.key]), drop.reason) for drop in plan.drop] == [
        (["c"], FOR_SYSTEM),
        (["b"], FOR_SYSTEM),
    ]
    assert case.names(plan.keep) == ["a"]


def test_what_is_over_the_limit_goes_but_the_reserve_may_be_used_by_requests() -> None:
    case = Case(("a", 40, 0), ("b", 40, 0))
    assert case.admit(memory(-50, warm=80, reserve=50), ["a", "b"]).drop == ()
    plan = case.admit(memory(-51, warm=80, reserve=50), ["a", "b"])
    assert [(case.names([drop.key]), drop.reason) for drop in plan.drop] == [(["b"], FOR_LIMIT)]


def test_while_the_cost_is_not_known_any_room_will_do() -> None:
    case = Case(("a", 40, 0))
    assert warmed(case.admit(memory(1), cost=None)) == ["a"]
    assert warmed(case.admit(memory(-1), cost=None)) == []


def test_what_is_too_much() -> None:
    assert not is_too_much(memory(-5, reserve=5))
    assert is_too_much(memory(-6, reserve=5))
    assert is_too_much(memory(500, pressure=2))


NAMES = "abcdef"


@st.composite
def cases(draw: st.DrawFn) -> tuple[Case, list[str], Memory]:
    shared = draw(st.integers(0, 10))
    entries = [(name, draw(st.integers(11, 40)), draw(st.integers(0, 2))) for name in NAMES]
    held = draw(st.lists(st.sampled_from(NAMES), unique=True))
    pressure = draw(st.sampled_from([1, 1, 1, 2, 4]))
    case = Case(*entries, shared=shared)
    warm = sum(len(case.prefixes[name]) for name in held)
    now = memory(draw(st.integers(-60, 200)), warm=warm, reserve=draw(st.integers(0, 30)), pressure=pressure)
    return case, held, now


@given(cases())
def test_every_wanted_prefix_is_in_one_part_of_the_plan(example: tuple[Case, list[str], Memory]) -> None:
    case, held, now = example
    plan = case.admit(now, held)
    parts = [*plan.keep, *(item.key for item in plan.warm), *(item.key for item in plan.defer)]
    assert sorted(parts) == sorted(item.key for item in case.wanted)
    keys = [case.key(name) for name in held]
    assert sorted([*plan.keep, *(drop.key for drop in plan.drop)]) == sorted(keys)
    assert set(plan.short) == {item.key for item in plan.defer}


@given(cases())
def test_what_is_admitted_fits_beside_what_stays(example: tuple[Case, list[str], Memory]) -> None:
    case, held, now = example
    plan = case.admit(now, held)
    unique = {token for name in held for token in enumerate(case.prefixes[name].tokens)}
    after = {
        token
        for key in (*plan.keep, *(item.key for item in plan.warm))
        for token in enumerate(_ids(case, key))
    }
    if plan.warm:
        assert len(after) - len(unique) <= now.available


def _ids(case: Case, key: str) -> tuple[int, ...]:
    return next(item.tokens for item in case.prefixes.values() if item.key == key)


@given(cases())
def test_nothing_is_put_off_that_would_fit_as_it_is(example: tuple[Case, list[str], Memory]) -> None:
    case, held, now = example
    plan = case.admit(now, held)
    if now.pressure > 1:
        return
    for key, short in plan.short.items():
        if short.needed:
            assert short.needed > short.available
            assert short.needed >= len(_ids(case, key))


def test_the_costs_of_a_plan_count_what_is_shared_for_the_first_that_is_warmed() -> None:
    case = Case(("a", 50, 0), ("b", 60, 0), ("c", 900, 1), shared=40)
    plan = case.admit(memory(110))
    by_key = {item.key: item for item in case.prefixes.values()}
    costs = {tuple(case.names([cost.key])): cost for cost in entry_costs(plan, by_key, EXACT)}
    found = {name: (cost.tokens, cost.own, cost.kv_bytes, cost.fits) for (name,), cost in costs.items()}
    assert found == {"a": (50, 50, 50, True), "b": (60, 20, 20, True), "c": (900, 860, 860, False)}


def test_what_an_edit_has_left_goes_before_what_is_wanted() -> None:
    case = Case(("new", 500, 0), ("old", 50, 0), ("kept", 50, 0))
    now = memory(-60, warm=100, reserve=50)
    plan = case.admit(now, ["old", "kept"], previous={"new": "old"})
    assert [(case.names([drop.key]), drop.reason) for drop in plan.drop] == [(["old"], FOR_LIMIT)]
    assert case.names(plan.keep) == ["kept"]


def test_what_ordinary_traffic_has_cached_pushes_nothing_out() -> None:
    case = Case(("a", 50, 0))
    now = replace(memory(-500, warm=50, reserve=100), ordinary=400)
    assert case.admit(now, ["a"]).drop == ()
    assert not is_too_much(now)


def test_what_is_being_warmed_has_its_room() -> None:
    case = Case(("a", 50, 0), ("b", 50, 0))
    key = case.key("a")
    plan = make_plan(case.wanted, [], in_flight=[key])
    by_key = {item.key: item for item in case.prefixes.values()}
    assert deferred(admit(plan, case.wanted, Room(memory(70), EXACT, by_key, [], {key: 0.5}))) == ["b"]
    assert warmed(admit(plan, case.wanted, Room(memory(75), EXACT, by_key, [], {key: 0.5}))) == ["b"]


def test_nothing_more_is_freed_while_something_is_on_its_way_out() -> None:
    case = Case(("a", 40, 0), ("b", 40, 0))
    by_key = {item.key: item for item in case.prefixes.values()}
    keys = [item.key for item in case.wanted]
    room = Room(memory(-60, warm=80), EXACT, by_key, keys)
    plan = make_plan(case.wanted, keys)
    assert len(admit(plan, case.wanted, room).drop) == 2
    assert admit(plan, case.wanted, replace(room, is_freeing=True)).drop == ()


def test_what_is_being_warmed_gives_way_before_what_is_warm() -> None:
    case = Case(("a", 40, 0), ("b", 40, 0))
    by_key = {item.key: item for item in case.prefixes.values()}
    warm, warming = (item.key for item in case.wanted)
    plan = make_plan(case.wanted, [warm], in_flight=[warming])
    for excess, dropped in ((40, 0), (41, 1)):
        room = Room(memory(-excess, warm=40), EXACT, by_key, [warm], {warming: 0.5})
        assert len(admit(plan, case.wanted, room).drop) == dropped
    critical = Room(memory(0, warm=40, pressure=4), EXACT, by_key, [warm], {warming: 0.5})
    assert len(admit(plan, case.wanted, critical).drop) == 1
