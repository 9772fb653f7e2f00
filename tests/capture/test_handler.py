"""The daemon's part of a capture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.explain.examples import Json, system, tool, user
from tests.patience import PATIENCE
from tests.test_daemon import Running, entry, running
from warmd.capture.handler import capture_handler, refuse_capture
from warmd.control.errors import ControlError
from warmd.engines.base import Chat, LiveRequest
from warmd.errors import RenderError
from warmd.radix import pack
from warmd.traffic import Listeners, TooManyListenersError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "prompts.json"


def request(*messages: Json, tools: list[Json] | None = None, cached: int = 0, **kwargs: Any) -> LiveRequest:
    """A request in the scripted engine's tokens."""
    text = json.dumps([kwargs, tools], ensure_ascii=False) + json.dumps(list(messages), ensure_ascii=False)
    return LiveRequest(pack(map(ord, text)), cached, cached, Chat(list(messages), tools, kwargs))


class Capturing:
    """A capture that is under way."""

    def __init__(self, it: Running, **arguments: Any) -> None:
        self.result: Json = {}
        self.error: str | None = None
        self._handle, self._arguments = capture_handler(it.daemon), arguments

    async def run(self) -> None:
        try:
            self.result = await self._handle(self._arguments)
        except ControlError as error:
            self.error = str(error)


async def captured(it: Running, *requests: LiveRequest, **arguments: Any) -> Capturing:
    capturing = Capturing(it, **arguments)
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(capturing.run)
            await it.until(lambda: bool(it.daemon.traffic.listeners._open))
            for item in requests:
                it.engine.request(item)
    return capturing


async def test_the_next_chat_request_is_captured(path: Path) -> None:
    async with running(path, entry("a")) as it:
        await it.applied(1)
        text = LiveRequest(pack([1, 2]), 0, 0)
        sent = request(system("Be brief."), user("hi"), tools=[tool("f")], enable_thinking=True)
        found = await captured(it, text, sent, name="x")
        assert found.result["messages"] == [system("Be brief.")]
        assert found.result["tools"] == [tool("f")]
        assert found.result["chat_template_kwargs"] == {"enable_thinking": True}
        size = found.result["tokens"]
        assert found.result["requests"] == [{"tokens": len(sent.tokens), "matched": size}]
        assert found.result["problem"] is None
        # Nothing was added to what is kept warm.
        assert it.states() == {"a": "warm"}


async def test_a_dry_run_says_what_is_wrong_and_waits_for_nothing(path: Path) -> None:
    async with running(path) as it:
        await it.applied(1)
        assert await capture_handler(it.daemon)({"name": "x", "dry_run": True}) == {}
        with pytest.raises(ControlError, match="from 1 to 32"):
            await capture_handler(it.daemon)({"requests": 99, "dry_run": True})


async def test_where_there_is_nothing_to_see_it_is_refused() -> None:
    with pytest.raises(ControlError, match=r"^nothing is seen$"):
        await refuse_capture("nothing is seen")({"dry_run": True})


async def test_several_requests(path: Path) -> None:
    async with running(path) as it:
        await it.applied(1)
        sent = [request(system("Be brief."), user(text)) for text in "abc"]
        found = await captured(it, *sent, requests=3)
        assert found.result["messages"] == [system("Be brief.")]
        assert len(found.result["requests"]) == 3


async def test_requests_that_have_nothing_in_common(path: Path) -> None:
    async with running(path) as it:
        await it.applied(1)
        found = await captured(
            it, request(system("One."), user()), request(system("Two."), user()), requests=2
        )
        assert found.error == "the requests' system messages differ: from character 1 on"


async def test_only_a_suggested_beginning(path: Path) -> None:
    async with running(path) as it:
        await it.applied(1)
        long = [request(system("x" * 700), user(str(number))) for number in range(4)]
        for item in long[:3]:
            it.engine.request(item)
        other = request(system("y" * 700), user())
        found = await captured(it, other, long[3], suggested=True)
        assert found.result["messages"] == [system("x" * 700)]


async def test_an_entry_that_cannot_be_rendered(path: Path) -> None:
    async with running(path) as it:
        await it.applied(1)
        it.engine.fail_render("x", RenderError("no template"))
        found = await captured(it, request(system("One."), user()), name="x")
        assert (found.result["tokens"], found.result["problem"]) == (None, "no template")
        assert found.result["requests"][0]["matched"] is None


async def test_nothing_came_in_time(path: Path) -> None:
    async with running(path) as it:
        await it.applied(1)
        found = await captured(it, seconds=0.05)
        assert found.error == "no chat request came within 0.05 s"
        found = await captured(it, request(system("One."), user()), requests=2, seconds=0.2)
        assert found.error == "only 1 of 2 chat requests came within 0.2 s"
        found = await captured(it, seconds=0.05, suggested=True)
        assert found.error == "no chat request with a suggested beginning came within 0.05 s"


@pytest.mark.parametrize(
    "arguments",
    [
        {"requests": 0},
        {"requests": 33},
        {"requests": True},
        {"requests": "1"},
        {"seconds": 0},
        {"seconds": "1"},
        {"seconds": True},
        {"seconds": float("inf")},
        {"suggested": 1},
        {"name": 5},
        {"other": 1},
    ],
)
async def test_what_cannot_be_asked(path: Path, arguments: Json) -> None:
    async with running(path) as it:
        with pytest.raises(ControlError):
            await capture_handler(it.daemon)(arguments)


async def test_a_client_that_goes_leaves_nothing_behind(path: Path) -> None:
    async with running(path) as it:
        await it.applied(1)
        async with anyio.create_task_group() as tasks:
            for _ in range(Listeners.MOST):
                tasks.start_soon(Capturing(it).run)
            await it.until(lambda: len(it.daemon.traffic.listeners._open) == Listeners.MOST)
            with pytest.raises(ControlError, match="others already wait"):
                await capture_handler(it.daemon)({})
            tasks.cancel_scope.cancel()
        assert it.daemon.traffic.listeners._open == set()


async def test_who_does_not_take_what_comes_gets_no_more() -> None:
    listeners = Listeners()
    with listeners.listen() as requests:
        for _ in range(Listeners.WAITING * 2):
            listeners.tell(request(user()))
        assert requests.statistics().current_buffer_used == Listeners.WAITING


async def test_there_is_an_end_to_the_number_of_listeners() -> None:
    listeners = Listeners()
    with listeners.listen():
        for _ in range(3):
            with listeners.listen():
                pass
        listeners.MOST = 1
        with pytest.raises(TooManyListenersError), listeners.listen():
            pass
