"""The fake engine keeps the contract of a real one, and does what it is told."""

from __future__ import annotations

import threading

import anyio
import pytest

from tests.patience import PATIENCE
from warmd.engines.base import Engine, EngineDiedError, Held, Identity, LiveRequest, Warmed
from warmd.errors import NotWarmableError
from warmd.prompts.document import Entry
from warmd.testing import Call, FakeEngine

pytestmark = pytest.mark.anyio


def make_entry(name: str = "one", text: str = "Be brief.", **changes: object) -> Entry:
    values: dict[str, object] = {
        "name": name,
        "index": 0,
        "messages": ({"role": "system", "content": text},),
        "tools": None,
        "chat_template_kwargs": {},
        "priority": 0,
        "digest": f"{name}-{text}",
    }
    return Entry(**(values | changes))  # type: ignore[arg-type]


async def warm(engine: FakeEngine, entry: Entry) -> Warmed:
    return await engine.warm(await engine.render(entry), lambda done: None)


def test_it_is_an_engine() -> None:
    engine: Engine = FakeEngine()
    assert Identity("fake", 1) == engine.identity


async def test_equal_content_gives_equal_tokens() -> None:
    engine = FakeEngine()
    assert await engine.render(make_entry("a")) == await engine.render(make_entry("b"))


async def test_an_edit_gives_other_tokens() -> None:
    engine = FakeEngine()
    assert await engine.render(make_entry(text="new")) != await engine.render(make_entry())


async def test_an_image_cannot_be_kept_warm() -> None:
    with pytest.raises(NotWarmableError):
        await FakeEngine().render(make_entry(has_images=True))


async def test_warming_reports_each_chunk_and_holds_the_prefix() -> None:
    engine, done = FakeEngine(chunk_tokens=20), list[int]()
    prefix = await engine.render(make_entry())
    assert Warmed(53, 53, 0, 424) == await engine.warm(prefix, done.append)
    assert done == [20, 40, 53]
    assert {prefix.key: Held(424)} == engine.held()


async def test_a_beginning_that_is_held_is_reused() -> None:
    engine = FakeEngine()
    await warm(engine, make_entry(text="Be brief."))
    assert Warmed(52, 6, 46, 416) == await warm(engine, make_entry("two", text="Be bold."))


async def test_a_look_up_finds_what_is_held() -> None:
    engine, entry = FakeEngine(), make_entry()
    prefix = await engine.render(entry)
    assert await engine.look_up(entry, prefix) == 0
    await warm(engine, entry)
    assert await engine.look_up(entry, prefix) == 53


@pytest.mark.parametrize("found", [0, 7, None])
async def test_a_look_up_can_be_made_to_miss(found: int | None) -> None:
    engine, entry = FakeEngine(), make_entry()
    engine.miss("one", found)
    await warm(engine, entry)
    assert found == await engine.look_up(entry, await engine.render(entry))


async def test_a_failure_is_raised_as_often_as_scripted() -> None:
    engine = FakeEngine()
    engine.fail_warm("one", MemoryError(), times=2)
    for _ in range(2):
        with pytest.raises(MemoryError):
            await warm(engine, make_entry())
    assert engine.held() == {}
    await warm(engine, make_entry())
    assert len(engine.held()) == 1


async def test_a_gate_holds_one_warming_and_not_the_others() -> None:
    engine = FakeEngine()
    gate = engine.hold("one")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(warm, engine, make_entry("one"))
        await warm(engine, make_entry("two", text="Other."))
        assert engine.running == 1
        gate.set()
    assert 2 == len(engine.held()) == engine.peak_concurrency


async def test_a_cancelled_warming_leaves_nothing_behind() -> None:
    engine = FakeEngine()
    engine.hold("one")
    with anyio.move_on_after(0):
        await warm(engine, make_entry())
    assert (engine.held(), engine.running) == ({}, 0)


async def test_a_loss_is_announced_even_before_anyone_waits() -> None:
    engine = FakeEngine()
    await warm(engine, make_entry())
    engine.lose("one")
    with anyio.fail_after(PATIENCE):
        await engine.changed()
    assert engine.held() == {}


async def test_a_new_model_holds_nothing() -> None:
    engine = FakeEngine()
    await warm(engine, make_entry())
    engine.load("other")
    await engine.changed()
    assert (Identity("other", 2), {}) == (engine.identity, engine.held())


async def test_death_reaches_whoever_waits() -> None:
    engine = FakeEngine()

    async def wait_for_death() -> None:
        with pytest.raises(EngineDiedError):
            await engine.changed()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait_for_death)
        await anyio.lowlevel.checkpoint()
        engine.die()
    with pytest.raises(EngineDiedError):
        await engine.render(make_entry())


async def test_a_served_request_counts_as_a_hit() -> None:
    engine = FakeEngine()
    await warm(engine, make_entry())
    served: list[LiveRequest] = []
    engine.follow(served.append)
    engine.serve("one")
    assert [(request.cached, request.warm) for request in served] == [(53, 53)]


async def test_calls_are_recorded_in_order_with_their_thread() -> None:
    engine, here = FakeEngine(), threading.get_ident()
    await warm(engine, make_entry())
    await engine.drop(list(engine.held()))
    assert [
        Call("render", ("one",), here),
        Call("warm", ("one",), here),
        Call("drop", ("one",), here),
    ] == engine.calls
