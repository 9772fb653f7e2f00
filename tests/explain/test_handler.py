"""What the daemon answers about near misses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.test_daemon import entry, running
from warmd.again import UnknownEntryError
from warmd.control.errors import ControlError
from warmd.engines.base import Chat, LiveRequest
from warmd.explain.handler import explain_handler
from warmd.radix import pack
from warmd.testing import FakeEngine
from warmd.traffic import REMEMBERED

TEXT = "You are a reviewer of code."


class TellingEngine(FakeEngine):
    """A scripted engine that can say what its tokens mean."""

    @property
    def template_arguments(self) -> Mapping[str, Any]:
        return {"enable_thinking": True}

    async def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(chr, tokens))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "prompts.json"


def request(content: str, **kwargs: Any) -> LiveRequest:
    """A request with another system text, in the scripted engine's tokens."""
    messages = [{"role": "system", "content": content}]
    text = json.dumps([kwargs, None]) + json.dumps(messages)[:-1] + ', {"role": "user"'
    return LiveRequest(pack(map(ord, text)), 0, 0, Chat(messages, None, kwargs))


async def test_a_near_miss_is_explained(path: Path) -> None:
    async with running(path, entry("a", TEXT), entry("b")) as it:
        await it.applied(1)
        it.engine.request(request(TEXT.replace("code", "prose")))
        found = await explain_handler(it.daemon)({})
        (miss,) = found["near_misses"]
        assert (miss["entry"], miss["place"], miss["cause"]) == ("a", "messages[0] (system)", "text")
        assert miss["excerpt"]["entry"] == "code."
        assert miss["excerpt"]["request"] == "prose."
        assert miss["matched"] < miss["prefix_tokens"]
        assert [(item["name"], item["near_misses"]) for item in found["entries"]] == [("a", 1), ("b", 0)]
        assert json.loads(json.dumps(found)) == found


async def test_only_the_last_few_are_remembered_and_one_entry_can_be_asked_for(path: Path) -> None:
    async with running(path, entry("a", TEXT), entry("b", "Something else entirely.")) as it:
        await it.applied(1)
        for number in range(REMEMBERED + 3):
            it.engine.request(request(f"{TEXT[:-5]}{number}"))
        it.engine.request(request("Something else."))
        handle = explain_handler(it.daemon)
        assert len((await handle({}))["near_misses"]) == REMEMBERED
        found = await handle({"name": "b"})
        assert [item["entry"] for item in found["near_misses"]] == ["b"]
        assert [item["name"] for item in found["entries"]] == ["b"]


async def test_with_an_engine_that_tells_texts(path: Path) -> None:
    async with running(path, entry("a", TEXT), engine=TellingEngine()) as it:
        await it.applied(1)
        it.engine.request(request(TEXT + " Be brief."))
        it.engine.request(replace(request(TEXT + " Be brief."), chat=None))
        misses = (await explain_handler(it.daemon)({}))["near_misses"]
        assert [item["cause"] for item in misses] == ["text_ends", "not_chat"]
        # The second's are those that were rendered.
        assert [item["excerpt"]["request"][:10] for item in misses] == [" Be brief.", " Be brief."]
        assert misses[1]["excerpt"]["entry"] == '"}'


async def test_an_entry_that_was_edited_or_removed_meanwhile(path: Path) -> None:
    async with running(path, entry("a", TEXT), entry("b")) as it:
        await it.applied(1)
        it.engine.request(request(TEXT.replace("code", "prose")))
        it.save(entry("a", TEXT.replace("code", "prose")), entry("b"))
        await it.applied(2)
        (miss,) = (await explain_handler(it.daemon)({"name": "a"}))["near_misses"]
        assert (miss["since"], miss["fits_now"]) == ("edited", True)
        it.save(entry("b"))
        await it.applied(3)
        (miss,) = (await explain_handler(it.daemon)({"name": "a"}))["near_misses"]
        assert miss["since"] == "removed"


async def test_without_a_near_miss_it_tells_what_is_known(path: Path) -> None:
    async with running(path, entry("a", TEXT)) as it:
        await it.applied(1)
        it.engine.serve("a")
        found = await explain_handler(it.daemon)({"name": "a"})
        assert found["near_misses"] == []
        (known,) = found["entries"]
        assert (known["state"], known["hits"]) == ("warm", 1)
        assert known["last_hit_at"] is not None


async def test_a_near_miss_that_fits_two_entries_is_explained_for_each(path: Path) -> None:
    short, long = f"{TEXT} Be brief.", f"{TEXT} Say all that there is to say."
    async with running(path, entry("short", short), entry("long", long), entry("other", "x" * 99)) as it:
        await it.applied(1)
        it.engine.request(request(f"{TEXT} Think."))
        handle = explain_handler(it.daemon)
        (chosen,) = (await handle({"name": "short"}))["near_misses"]
        (other,) = (await handle({"name": "long"}))["near_misses"]
        assert (chosen["entry"], chosen["counted_for"]) == ("short", None)
        assert (other["entry"], other["counted_for"]) == ("long", "short")
        assert chosen["matched"] == other["matched"]
        assert other["prefix_tokens"] == it.status("long").tokens
        assert (chosen["excerpt"]["entry"], other["excerpt"]["entry"][:7]) == ("Be brief.", "Say all")
        assert (await handle({"name": "other"}))["near_misses"] == []
        assert [item["entry"] for item in (await handle({}))["near_misses"]] == ["short"]


async def test_near_misses_of_another_model_are_forgotten(path: Path) -> None:
    async with running(path, entry("a", TEXT)) as it:
        await it.applied(1)
        it.engine.request(request(TEXT.replace("code", "prose")))
        it.engine.load("other")
        await it.until(lambda: it.states() == {"a": "warm"} and len(it.named("entry.warmed")) == 2)
        assert (await explain_handler(it.daemon)({}))["near_misses"] == []


@pytest.mark.parametrize("arguments", [{"name": 5}, {"name": ["a"]}, {"other": 1}])
async def test_what_cannot_be_asked(path: Path, arguments: dict[str, Any]) -> None:
    async with running(path, entry("a", TEXT)) as it:
        await it.applied(1)
        with pytest.raises(ControlError):
            await explain_handler(it.daemon)(arguments)


async def test_an_unknown_name_is_told_with_the_nearest_one_where_one_is_near(path: Path) -> None:
    async with running(path, entry("coder", TEXT)) as it:
        await it.applied(1)
        with pytest.raises(UnknownEntryError, match=r"^no entry is named 'codr'; the nearest is 'coder'$"):
            await explain_handler(it.daemon)({"name": "codr"})
        with pytest.raises(UnknownEntryError, match=r"^no entry is named 'x'; `warmd status` names those"):
            await explain_handler(it.daemon)({"name": "x"})


async def test_where_requests_are_not_seen_nobody_knows_of_near_misses(path: Path) -> None:
    async with running(path, entry("a", TEXT)) as it:
        await it.applied(1)
        it.engine.hide_requests()
        found = await explain_handler(it.daemon)({})
        assert found["near_misses"] is None
        assert (found["entries"][0]["hits"], found["entries"][0]["near_misses"]) == (None, None)
