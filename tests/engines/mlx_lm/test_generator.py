"""When the engine's thread lets warming in: never while a request waits or is prefilled."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from mlx_lm import load, server

from tests.toys import make_model
from warmd.engines.mlx_lm.desk import Job
from warmd.engines.mlx_lm.generator import WarmingResponseGenerator, WatchedBatchGenerator
from warmd.engines.mlx_lm.guard import Guard
from warmd.engines.mlx_lm.prompt_cache import WarmPromptCache
from warmd.engines.mlx_lm.queues import SteppingQueue
from warmd.engines.mlx_lm.room import EngineRoom
from warmd.engines.mlx_lm.store import WarmStore
from warmd.engines.pace import Pace
from warmd.memory.readings import Limit

PROMPT = [[5, 6, 7, 8, 9]]


class Counting(EngineRoom):
    """A room with a job that is never done, and a clock by which its share of the time has always come."""

    def __init__(self) -> None:
        clock = itertools.count()
        pace = Pace(256, 0.25, live_share=0.9, clock=lambda: float(next(clock)))
        super().__init__(WarmStore(), Guard(Limit(None, 0)), pace)
        self.steps = 0
        self.desk.submit(Job(self._step))

    def _step(self) -> None:
        self.steps += 1

    def taken(self, act: Any) -> int:
        """Steps while something is done."""
        before = self.steps
        act()
        return self.steps - before


@pytest.fixture
def room() -> Counting:
    return Counting()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load(str(make_model(tmp_path_factory.mktemp("generator"))))[0]


def make_generator(model: Any, room: EngineRoom, **more: Any) -> Any:
    return WatchedBatchGenerator(model, room=room, max_tokens=200, **more)


def test_between_the_tokens_of_a_batch_there_is_warming_but_not_before_its_prompts_are_done(
    model: Any, room: Counting
) -> None:
    generator = make_generator(model, room)
    generator.insert_segments([PROMPT])
    found: Any = ([], [])
    while not found[1]:
        found = generator.next()
        assert room.steps == 0
    # The clock is asked once before any time has passed.
    assert room.taken(lambda: [generator.next() for _ in range(20)]) >= 10
    # Also while the server finds a new request each time that it looks.
    generator.insert_segments([PROMPT])
    assert room.taken(generator.next) == 0
    assert room.taken(lambda: [generator.next() for _ in range(20)]) >= 10
    generator.close()


def test_prompts_that_a_full_batch_leaves_waiting_are_not_made_to_wait_for_warming(
    model: Any, room: Counting
) -> None:
    generator = make_generator(model, room, completion_batch_size=2, prefill_batch_size=2)
    generator.insert_segments([PROMPT] * 3, max_tokens=[60, 60, 5])
    assert room.taken(lambda: [generator.next() for _ in range(40)]) == 0
    assert len(generator._unprocessed_sequences) == 1
    generator.close()


def put_many(queue: SteppingQueue) -> None:
    for _ in range(20):
        queue.put(server.Response("", 1, 0.0, None, ()))


@pytest.mark.parametrize("waits", ["is_queued", "is_waiting"])
@pytest.mark.promise(5)
def test_while_a_request_waits_for_others_to_end_there_is_no_warming(
    model: Any, room: Counting, waits: str
) -> None:
    generator = make_generator(model, room)
    generator.insert_segments([PROMPT])
    for _ in range(10):
        generator.next()
    setattr(room, waits, True if waits == "is_waiting" else lambda: True)
    assert room.taken(lambda: [generator.next() for _ in range(20)]) == 0
    queue = SteppingQueue(SimpleNamespace(put=lambda item: None), room)
    assert room.taken(lambda: put_many(queue)) == 0
    setattr(room, waits, False if waits == "is_waiting" else lambda: False)
    assert room.taken(lambda: put_many(queue)) >= 10
    generator.close()


class Taking(WarmingResponseGenerator):
    """Takes requests as the engine's thread would, without one."""

    def __init__(self, room: EngineRoom) -> None:
        self._room = room
        self._warm_cache = WarmPromptCache(room.store, 0)
        self.model_provider = SimpleNamespace(model_key=None)
        self._is_distributed = self._is_to_stop = False
        self.requests = server.Queue()


def test_a_request_that_was_taken_waits_until_it_begins(model: Any, room: Counting) -> None:
    taking = Taking(room)
    assert taking._next_request() is None
    found = [room.is_waiting]
    taking.requests.put("a request")
    assert taking._next_request(0.1) == "a request"
    found.append(room.is_waiting)
    make_generator(model, room).insert_segments([PROMPT])
    assert [*found, room.is_waiting] == [False, True, False]


def test_requests_are_served_from_when_one_is_taken_until_there_are_none(room: Counting) -> None:
    taking = Taking(room)
    found = [room.is_serving]
    taking.requests.put("a request")
    taking._next_request(0.1)
    found.append(room.is_serving)
    # While one is served nobody waits for the next.
    taking._next_request()
    found.append(room.is_serving)
    taking._next_request(0.001)
    assert [*found, room.is_serving] == [False, True, True, False]


@pytest.mark.promise(5)
@pytest.mark.parametrize("at", [1, 2, 7])
def test_a_request_that_comes_while_an_idle_server_warms_is_taken_after_that_step(
    room: Counting, at: int
) -> None:
    taking = Taking(room)
    room.desk.fail_all(RuntimeError())
    steps: list[int] = []

    def step() -> None:
        steps.append(len(steps) + 1)
        if steps[-1] == at:
            taking.requests.put("a request")

    room.desk.submit(Job(step))
    taken = [taking._next_request(0.1) for _ in range(at)]
    # The step during which it came, and none more.
    assert [*range(1, at + 1)] == steps
    assert taken == [None] * (at - 1) + ["a request"]


@pytest.mark.promise(5)
def test_a_request_that_is_there_is_taken_without_a_step(room: Counting) -> None:
    taking = Taking(room)
    taking.requests.put("a request")
    assert room.taken(lambda: taking._next_request(0.1)) == 0


def test_between_two_tokens_there_is_one_step_at_most(room: Counting) -> None:
    assert {room.taken(room.step_while_serving) for _ in range(20)} == {0, 1}
