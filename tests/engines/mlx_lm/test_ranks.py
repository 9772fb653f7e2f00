"""What ranks agree on before anything is computed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import mlx_lm
import pytest

from tests.engines.mlx_lm.meeting import on_ranks
from tests.engines.mlx_lm.warming import ids, make_provider, warm
from warmd.engines.base import NoRoomError, Prefix
from warmd.engines.mlx_lm.desk import Job
from warmd.engines.mlx_lm.orders import Declare, Drop, Warm
from warmd.engines.mlx_lm.prompt_cache import WarmPromptCache
from warmd.engines.mlx_lm.ranks import Ranks, Shard, problem_of
from warmd.engines.mlx_lm.room import EngineRoom
from warmd.engines.mlx_lm.shared_desk import RankError, SharedDesk
from warmd.engines.mlx_lm.shared_guard import SharedGuard
from warmd.engines.mlx_lm.store import WarmStore
from warmd.engines.pace import Pace
from warmd.memory.cost import Cost
from warmd.memory.fake import FakeMeter
from warmd.memory.readings import Limit

GB = 10**9
ORDER = Warm(Prefix((1, 2, 3)))


def test_one_process_alone_is_rank_0_of_1() -> None:
    ranks = Ranks.join()
    assert (ranks.size, ranks.rank, ranks.leads) == (1, 0, True)
    assert (ranks.share("an item"), ranks.gather(3, 4), ranks.agree(5)) == ("an item", [(3, 4)], True)


@pytest.mark.parametrize(
    ("shards", "word"),
    [
        ([Shard(1, 1, 7), Shard(1, 1, 7)], None),
        ([Shard(1, 1, 7), Shard(1, 1, 8)], None),
        ([Shard(1, 0, 7), Shard(1, 0, 7)], None),
        ([Shard(1, 0, 7), Shard(1, 0, 8)], "different kinds"),
        ([Shard(1, 1, 7), Shard(1, 0, 8)], "different kinds"),
        ([Shard(1, 1, 7), Shard(0, 1, 7)], "rank 1"),
    ],
)
def test_what_is_kept_has_to_be_the_same_on_all_ranks(shards: list[Shard], word: str | None) -> None:
    problem = problem_of(shards)
    assert problem is None if word is None else word in str(problem)


# --- memory --------------------------------------------------------------------------------------


def guard(ranks: Ranks, used: int, limit: int = 4 * GB) -> SharedGuard:
    made = SharedGuard(Limit(limit, 0), ranks, FakeMeter(active=used, footprint=used))
    made.model_loaded(Cost(row_bytes=1000_000))
    return made


def asking(used: int, ask: Callable[[SharedGuard], object]) -> Callable[[Ranks], object]:
    def act(ranks: Ranks) -> object:
        try:
            return ask(guard(ranks, used))
        except NoRoomError as error:
            return str(error)

    return act


def test_a_prefix_is_admitted_where_every_rank_has_room() -> None:
    assert on_ranks(*(asking(used, lambda g: g.admit(100)) for used in (GB, 2 * GB))) == [None, None]


@pytest.mark.promise(4)
def test_a_rank_without_room_stops_all_of_them_with_the_same_words() -> None:
    found = on_ranks(*(asking(used, lambda g: g.admit(1000)) for used in (GB, 3 * GB)))
    assert found == ["needs 2.05 GB, 1 GB are available"] * 2
    found = on_ranks(*(asking(used, lambda g: g.chunk(0, 64)) for used in (3 * GB, 4 * GB)))
    assert found[0] == found[1]
    assert "are available" in str(found[0])


def test_a_rank_whose_system_is_short_of_memory_is_named_to_the_others() -> None:
    def act(pressure: int) -> Callable[[Ranks], object]:
        def run(ranks: Ranks) -> object:
            meter = FakeMeter(active=GB, footprint=GB, pressure=pressure)
            made = SharedGuard(Limit(4 * GB, 0), ranks, meter)
            made.model_loaded(Cost(row_bytes=1000))
            with pytest.raises(NoRoomError) as caught:
                made.chunk(0, 64)
            return str(caught.value)

        return run

    assert on_ranks(act(1), act(4)) == ["rank 1 is short of memory", "the system is short of memory"]


def test_a_chunk_is_as_small_as_the_rank_with_the_least_says() -> None:
    found = on_ranks(*(asking(GB, lambda g, size=size: g.chunk(0, size)) for size in (30, 12)))  # type: ignore[misc]
    assert found == [12, 12]


def test_something_that_is_not_needed_is_kept_where_every_rank_can_spare_it() -> None:
    found = on_ranks(*(asking(used, lambda g: g.can_spare(GB)) for used in (GB, 3 * GB)))
    assert found == [False, False]


# --- the desk ------------------------------------------------------------------------------------


class Following:
    """A rank that makes a job of each order and notes its steps."""

    def __init__(self, steps: int = 2) -> None:
        self.log: list[str] = []
        self.steps = steps

    def job(self, order: object) -> Job[str]:
        name = type(order).__name__
        taken = iter(range(1, self.steps + 1))

        def step() -> str | None:
            self.log.append(name)
            return name if next(taken) == self.steps else None

        return Job(step, lambda: self.log.append(f"{name} abandoned"), order)


def follow(following: Following, rounds: int) -> Callable[[Ranks], list[str]]:
    def act(ranks: Ranks) -> list[str]:
        desk = SharedDesk(ranks)
        desk.make_job = following.job
        for _ in range(rounds):
            desk.step()
        return following.log

    return act


def test_other_ranks_do_what_rank_0_does_in_the_same_order() -> None:
    def lead(ranks: Ranks) -> list[str]:
        desk, own = SharedDesk(ranks), Following()
        desk.submit(own.job(ORDER))
        desk.step()
        desk.submit(own.job(Drop(("a",))), is_quick=True)
        cancelled = desk.submit(own.job(Declare(())))
        local = desk.submit(Job(lambda: len(own.log)), is_quick=True)
        for _ in range(4):
            desk.step()
        cancelled.cancel()
        assert [desk.step(), desk.step()] == [True, False]
        assert local.result() == 3
        return own.log

    leading, following = on_ranks(lead, follow(Following(), 7))
    assert leading == ["Warm", "Drop", "Drop", "Warm", "Declare abandoned"]
    assert following == leading


def test_a_model_that_is_unloaded_takes_every_ranks_jobs_along() -> None:
    def lead(ranks: Ranks) -> list[str]:
        desk, own = SharedDesk(ranks), Following(9)
        failed = desk.submit(own.job(ORDER))
        desk.step()
        desk.fail_all(RuntimeError("gone"))
        assert isinstance(failed.exception(), RuntimeError)
        desk.submit(own.job(Drop(("a",))))
        desk.step()
        return own.log

    def other(ranks: Ranks) -> list[str]:
        desk, own = SharedDesk(ranks), Following(9)
        desk.make_job = own.job
        desk.step()
        desk.fail_all(RuntimeError("gone"))
        desk.step()
        assert len(desk._followed) == 1
        return own.log

    assert on_ranks(lead, other) == [["Warm", "Drop"]] * 2


def test_a_shortage_is_agreed_on_and_ends_nothing() -> None:
    def fail() -> None:
        raise NoRoomError(2, 1)

    def lead(ranks: Ranks) -> str:
        desk = SharedDesk(ranks)
        failed: Future[None] = desk.submit(Job(fail, order=ORDER))
        desk.step()
        return type(failed.exception()).__name__

    def other(ranks: Ranks) -> str:
        desk = SharedDesk(ranks)
        desk.make_job = lambda order: Job(fail, order=order)
        desk.step()
        return f"{len(desk._followed)} left"

    assert on_ranks(lead, other) == ["NoRoomError", "0 left"]


@pytest.mark.parametrize("failing", [0, 1])
def test_a_step_that_fails_on_one_rank_ends_its_thread(failing: int) -> None:
    def fail() -> None:
        raise ValueError("quotes a prompt")

    def act(ranks: Ranks) -> str:
        desk = SharedDesk(ranks)
        job = Job(fail if ranks.rank == failing else lambda: True, order=ORDER)
        desk.make_job = lambda order: job
        if ranks.leads:
            desk.submit(job)
        try:
            desk.step()
        except RankError as error:
            return str(error)
        return "fine"

    found = on_ranks(act, act)
    assert found[failing] == "a step of warming failed with ValueError"
    assert found[1 - failing] == "fine"


def test_nobody_asks_before_each_token_while_there_is_nothing_to_do() -> None:
    def act(ranks: Ranks) -> list[bool]:
        room = EngineRoom(WarmStore(), SharedGuard(Limit(None, 0), ranks), Pace(64, 1, 0.5), ranks=ranks)
        found = [room.desk.begin_round(stop=False), room.desk.is_resting]
        # Nobody comes: it would wait for ever.
        room.step_while_serving()
        if ranks.leads:
            room.desk.submit(Job(lambda: True))
        found += [room.desk.begin_round(stop=ranks.leads), room.desk.is_resting]
        room.step_while_serving()
        return found

    assert on_ranks(act, act) == [[False, True, True, False]] * 2


@pytest.mark.parametrize("waits", [False, True])
def test_a_step_between_tokens_meets_one_on_each_rank(waits: bool) -> None:
    def act(ranks: Ranks) -> int:
        seconds = itertools.count()
        pace = Pace(64, 0.25, 0.9, clock=lambda: float(next(seconds)))
        room = EngineRoom(WarmStore(), SharedGuard(Limit(None, 0), ranks), pace, ranks=ranks)
        own = Following(100)
        assert isinstance(room.desk, SharedDesk)
        room.desk.make_job = own.job
        if ranks.leads:
            room.desk.submit(own.job(ORDER))
            room.is_prefilling = waits
        room.desk.begin_round()
        for _ in range(200):
            room.step_while_serving()
        return len(own.log)

    leading, following = on_ranks(act, act)
    assert leading == following
    assert waits == (leading == 0)


# --- what is held --------------------------------------------------------------------------------


def test_ranks_that_remember_different_requests_start_from_none_and_stay_warm() -> None:
    """mlx-lm's own cache lets go of state by its bytes, which differ between a pipeline's ranks."""

    def act(cached: list[int]) -> Callable[[Ranks], object]:
        def run(ranks: Ranks) -> object:
            common: list[bool] = []

            def agree(number: int) -> bool:
                common.append(ranks.agree(number))
                return common[-1]

            cache = WarmPromptCache(WarmStore(agree=agree), 4, agree=ranks.agree)
            cache.insert_cache("model", cached, [])
            same = cache.fetch_nearest_cache("model", [9, 9])[1]
            return same, cache.fetch_nearest_cache("model", [1, 2, 3, 4]), common

        return run

    expected = ([9, 9], (None, [1, 2, 3, 4]), [True, True])
    found = on_ranks(act([1, 2, 3]), act([1, 2]))
    assert found == [expected, expected]


def test_ranks_that_hold_different_state_let_go_of_all_of_it(models: dict[str, Path]) -> None:
    provider = make_provider(mlx_lm.load(str(models["llama"]))[0])
    lost, held = ids(40), ids(40, seed=5)
    stores = [WarmStore(), WarmStore()]
    for store in stores:
        store.declare([Prefix(tuple(lost)), Prefix(tuple(held))])
        warm(store, provider, held)
    warm(stores[0], provider, lost)

    def act(ranks: Ranks) -> object:
        store = stores[ranks.rank]
        store._agree = ranks.agree
        told: list[int] = []
        store._on_divergence = lambda: told.append(len(store.held))
        cache = WarmPromptCache(store, 0, agree=ranks.agree)
        cache.model_key = "model"
        left = [len(cache.fetch_nearest_cache("model", [*t, 7])[1]) for t in (held, lost, held)]
        return left, told

    # Told once, when nothing is held any more.
    assert on_ranks(act, act) == [([1, 41, 41], [0])] * 2
