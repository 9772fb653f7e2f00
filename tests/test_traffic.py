"""Which requests are hits and which near misses, and of what."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.test_daemon import entry, running
from warmd.engines.base import Chat, LiveRequest, Prefix
from warmd.ledger import Slot
from warmd.prompts.document import Entry
from warmd.radix import common_length, pack
from warmd.status import SERVED, LiveCounts, State
from warmd.tell import Teller
from warmd.traffic import Traffic, is_near


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "prompts.json"


def request(text: str, *, cached: int = 0, warm: int = 0) -> LiveRequest:
    """A request in the scripted engine's tokens: one a character."""
    return LiveRequest(pack(map(ord, text)), cached, warm, Chat([], None, {}))


def rendered(content: str) -> str:
    """The scripted engine's rendering of an entry."""
    messages = json.dumps([{"role": "system", "content": content}], ensure_ascii=False)[:-1]
    return json.dumps([{}, None]) + messages


async def test_a_hit_is_counted_and_told(path: Path) -> None:
    async with running(path, entry("a"), entry("b")) as it:
        await it.applied(1)
        it.engine.serve("a")
        it.engine.serve("a")
        size = it.status("a").tokens or 0
        assert it.named("live.hit") == [{"entry": "a", "tokens": size + 1, "cached": size}] * 2
        status = it.status("a")
        assert (status.hits, status.tokens_saved, status.near_misses) == (2, 2 * size, 0)
        assert status.last_hit_at is not None
        assert (it.status("b").tokens_saved, it.status("b").last_hit_at) == (0, None)


async def test_what_the_server_would_have_had_without_us_is_not_saved(path: Path) -> None:
    async with running(path, entry("a", "one")) as it:
        await it.applied(1)
        size = it.status("a").tokens or 0
        it.engine.request(request(rendered("one") + "and a turn before", cached=size + 5))
        assert [event["cached"] for event in it.named("live.hit")] == [size + 5]
        assert (it.status("a").hits, it.status("a").tokens_saved) == (1, 0)


async def test_a_request_that_parts_from_an_entry_is_a_near_miss_told_by_positions(path: Path) -> None:
    async with running(path, entry("a", "You are a reviewer of code.")) as it:
        await it.applied(1)
        it.engine.request(request(rendered("You are a reviewer of prose.") + "hello"))
        matched = len(rendered("You are a reviewer of ")) - len('"}')
        size = it.status("a").tokens
        tokens = len(rendered("You are a reviewer of prose.") + "hello")
        assert it.named("live.near_miss") == [
            {"entry": "a", "tokens": tokens, "matched": matched, "prefix_tokens": size, "cached": 0}
        ]
        assert it.status("a").near_misses == 1
        (remembered,) = it.daemon.traffic.near_misses
        assert (remembered.entry, remembered.matched) == ("a", matched)


async def test_what_is_counted_since_the_start_survives_edits(path: Path) -> None:
    async with running(path, entry("a", "You are a reviewer of code.")) as it:
        await it.applied(1)
        size = it.status("a").tokens or 0
        it.engine.serve("a")
        it.engine.request(request(rendered("You are a reviewer of prose.") + "hello"))
        it.engine.request(request("something else"))
        it.save(entry("a", "Another text."))
        await it.applied(2)
        assert it.status("a").tokens_saved == 0
        counted = it.daemon.statistics().live
        assert counted == LiveCounts(requests=3, hits=1, tokens_saved=size, near_misses=1)


async def test_what_shares_next_to_nothing_is_no_near_miss(path: Path) -> None:
    async with running(path, entry("a", "x" * 400)) as it:
        await it.applied(1)
        it.engine.request(request('[{"other": 1}'))
        assert it.named("live.near_miss") == []


async def test_after_an_edit_requests_of_the_old_text_are_near_misses(path: Path) -> None:
    async with running(path, entry("a", "one and two")) as it:
        await it.applied(1)
        it.save(entry("a", "one and three"))
        await it.applied(2)
        # Also where the server's own cache has all of it.
        size = len(rendered("one and two"))
        it.engine.request(request(rendered("one and two") + "hello", cached=size))
        assert [miss["entry"] for miss in it.named("live.near_miss")] == ["a"]


async def test_the_old_text_is_a_hit_of_what_it_begins_with_and_no_near_miss_while_it_serves(
    path: Path,
) -> None:
    def entries(answer: str) -> list[Any]:
        rules = {"role": "system", "content": "one"}
        return [
            entry("a", "one"),
            {"name": "b", "messages": [rules, {"role": "assistant", "content": answer}]},
        ]

    async with running(path, *entries("two")) as it:
        await it.applied(1)
        gate, size = it.engine.hold("b"), it.status("b").tokens or 0
        (old,) = (text for text in it.engine.texts() if "two" in text)
        it.save(*entries("three"))
        await it.until(lambda: it.states()["b"] == "warming")
        it.engine.request(request(old + "hello", cached=size, warm=size))
        assert [hit["entry"] for hit in it.named("live.hit")] == ["a"]
        assert it.status("a").tokens_saved == it.status("a").tokens
        assert it.named("live.near_miss") == []
        gate.set()
        await it.applied(2)


async def test_the_old_text_alone_is_neither_a_hit_nor_a_near_miss_while_it_serves(path: Path) -> None:
    async with running(path, entry("a", "one and two")) as it:
        await it.applied(1)
        gate, old, size = it.engine.hold("a"), rendered("one and two"), it.status("a").tokens or 0
        it.save(entry("a", "one and three"))
        await it.until(lambda: it.states() == {"a": "warming"})
        it.engine.request(request(old + "hello", cached=size, warm=size))
        assert it.daemon.statistics().live == LiveCounts(requests=1)
        # What is prefilled is served by nothing that is kept.
        it.engine.request(request(old + "hello", cached=size - 1))
        assert it.daemon.statistics().live == LiveCounts(requests=2, near_misses=1)
        gate.set()
        await it.applied(2)
        it.engine.request(request(old + "hello", cached=size))
        assert it.daemon.statistics().live == LiveCounts(requests=3, near_misses=2)


@pytest.mark.parametrize(
    ("matched", "size", "expected"),
    [
        (64, 5000, True),
        (63, 5000, False),
        (30, 300, True),
        (29, 300, False),
        # What templates open with.
        (16, 20, True),
        (15, 20, False),
        (100, 100, False),
    ],
)
def test_what_is_near(matched: int, size: int, expected: bool) -> None:
    assert is_near(matched, size) == expected


OPENING = "You are a tester"
"""16 tokens, the fewest that tell anything."""


def wanted(*texts: str) -> dict[str, Slot]:
    """Slots of entries whose prefixes are these texts, a token each character."""
    prefixes = [Prefix(tuple(map(ord, text))) for text in texts]
    document = [Entry(text, 0, (), None, {}, 0, "") for text in texts]
    return {
        prefix.key: Slot(entry, prefix, (entry.name,))
        for entry, prefix in zip(document, prefixes, strict=True)
    }


def test_of_several_entries_that_begin_alike_the_one_of_which_most_was_there_is_missed() -> None:
    traffic, rng = Traffic(Teller(lambda event: None)), random.Random(3)
    for _ in range(50):
        texts = {OPENING + "".join(rng.choices("ab", k=rng.randint(1, 12))) for _ in range(8)}
        traffic.follow(wanted(*texts))
        for text in (OPENING + "".join(rng.choices("abc", k=8)) for _ in range(30)):
            traffic.near_misses.clear()
            traffic.request(request(text))
            matched = {each: common_length(each, text) for each in texts}
            most, is_whole = max(matched.values()), any(text.startswith(each) for each in texts)
            near = [each for each in texts if matched[each] == most and is_near(most, len(each))]
            near = [] if is_whole else near
            found = [(miss.matched, len(miss.entry)) for miss in traffic.near_misses]
            assert found == ([(most, min(map(len, near)))] if near else [])


def test_the_longest_entry_that_a_request_begins_with_has_the_hit_if_nothing_of_it_is_prefilled() -> None:
    traffic, rng = Traffic(Teller(lambda event: None)), random.Random(5)
    for _ in range(50):
        texts = {"".join(rng.choices("ab", k=rng.randint(1, 8))) for _ in range(8)}
        traffic.follow(wanted(*texts))
        for text in ("".join(rng.choices("abc", k=9)) for _ in range(30)):
            cached = rng.randint(0, 8)
            served = [each for each in texts if text.startswith(each) and len(each) <= cached]
            slot = traffic.hit(request(text, cached=cached))
            assert (slot.names if slot is not None else ()) == tuple(sorted(served, key=len)[-1:])


STATES: tuple[State, ...] = (
    "pending",
    "warming",
    "warm",
    "deferred",
    "failed",
    "stored_not_served",
    "quarantined",
)


@pytest.mark.parametrize("state", STATES)
def test_a_request_with_all_of_an_entry_in_any_state_misses_no_longer_one(state: State) -> None:
    traffic, slots = Traffic(Teller(lambda event: None)), wanted(OPENING, f"{OPENING} of everything")
    for slot in slots.values():
        slot.state = state
    traffic.follow(slots)
    for text in (OPENING, f"{OPENING} and", f"{OPENING} of every"):
        traffic.request(request(text))
    assert traffic.counts == LiveCounts(requests=3)
    # With what is not there of it, it is one.
    traffic.follow({key: slot for key, slot in slots.items() if len(slot.prefix) > len(OPENING)})
    traffic.request(request(f"{OPENING} and"))
    assert traffic.counts == LiveCounts(requests=4, near_misses=1)


@pytest.mark.parametrize("state", STATES)
def test_what_other_state_serves_is_a_hit_that_saved_nothing(state: State) -> None:
    traffic, slots = Traffic(Teller(lambda event: None)), wanted(OPENING)
    (slot,) = slots.values()
    slot.state, size, text = state, len(OPENING), f"{OPENING} and"
    traffic.follow(slots)
    traffic.request(request(text, cached=size))
    assert (slot.hits, slot.tokens_saved) == (1, 0)
    traffic.request(request(text, cached=size, warm=size))
    # Where it is not held itself, another that begins with it is.
    assert (slot.hits, slot.tokens_saved) == (2, size if state in SERVED else 0)
    # Its last token is computed.
    traffic.request(request(OPENING, cached=size - 1, warm=size - 1))
    assert traffic.counts.hits == 2


def test_entries_that_are_wanted_no_more_are_not_missed() -> None:
    traffic = Traffic(Teller(lambda event: None))
    for texts in (("abcd", "abcdef"), ("abcdef",), ("abcdef", "abcde")):
        traffic.follow(wanted(*(OPENING + text for text in texts)))
        traffic.request(request(f"{OPENING}abcx"))
    missed = [miss.entry.removeprefix(OPENING) for miss in traffic.near_misses]
    assert missed == ["abcd", "abcdef", "abcde"]
    traffic.follow({})
    traffic.request(request(f"{OPENING}abcx"))
    assert traffic.counts.near_misses == 3
