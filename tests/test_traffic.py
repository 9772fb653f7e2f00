"""Hits, near misses, and beginnings that nobody declared."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.test_daemon import Running, entry, running
from warmd.engines.base import Chat, LiveRequest, Prefix
from warmd.ledger import Slot
from warmd.prompts.document import Entry
from warmd.radix import common_length, pack
from warmd.status import LiveCounts
from warmd.tell import Teller
from warmd.traffic import Suggestions, Traffic, is_near


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "prompts.json"


def request(text: str, *, cached: int = 0, key: str | None = None) -> LiveRequest:
    """A request in the scripted engine's tokens: one a character."""
    return LiveRequest(pack(map(ord, text)), cached, cached, key, Chat([], None, {}))


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
    async with running(path, entry("a")) as it:
        await it.applied(1)
        key = next(iter(it.engine.held()))
        size = it.status("a").tokens or 0
        it.engine.request(LiveRequest(pack(range(size + 9)), size + 5, 0, key))
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
        it.engine.request(request(rendered("one and two") + "hello"))
        assert [miss["entry"] for miss in it.named("live.near_miss")] == ["a"]


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


def test_a_beginning_that_comes_cold_three_times_is_suggested() -> None:
    suggestions = Suggestions()
    for tail in "abc":
        assert suggestions.found() == []
        suggestions.count(request("x" * 600 + tail * 300))
    assert [(found.tokens, found.times) for found in suggestions.found()] == [(512, 3)]
    longest = suggestions.longest_of(request("x" * 600 + "d" * 300))
    assert longest is not None
    assert longest.tokens == 512
    assert suggestions.longest_of(request("y" * 600)) is None


def test_what_was_cached_is_not_cold_and_what_is_kept_is_bounded() -> None:
    suggestions = Suggestions()
    for _ in range(5):
        suggestions.count(request("x" * 600, cached=512))
    assert suggestions.found() == []
    for number in range(5000):
        suggestions.count(request(f"{number:05}" + "x" * 300))
    assert len(suggestions._counts) == Suggestions.KEPT


def test_a_shorter_beginning_is_one_of_its_own_only_where_it_came_more_often() -> None:
    suggestions = Suggestions()
    for _ in range(3):
        suggestions.count(request("x" * 2000))
    assert [(found.tokens, found.times) for found in suggestions.found()] == [(1792, 3)]
    suggestions.count(request("x" * 600))
    assert [(found.tokens, found.times) for found in suggestions.found()] == [(512, 4), (1792, 3)]


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
            most = max(matched.values())
            near = [each for each in texts if matched[each] == most and is_near(most, len(each))]
            found = [(miss.matched, len(miss.entry)) for miss in traffic.near_misses]
            assert found == ([(most, min(map(len, near)))] if near else [])


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


def test_what_a_wanted_prefix_begins_with_is_suggested_only_while_it_is_not_wanted() -> None:
    suggestions = Suggestions()
    for tail in "abc":
        suggestions.count(request("x" * 600 + tail * 300))
    often = [(512, 3)]
    others = {"short": pack(map(ord, "x" * 511)), "other": pack(map(ord, "y" * 600))}
    suggestions.follow(others)
    # A part of it is covered, but nobody has all of it.
    assert [(found.tokens, found.times) for found in suggestions.found()] == often
    exactly, longer = pack(map(ord, "x" * 512)), pack(map(ord, "x" * 700))
    suggestions.follow({**others, "exactly": exactly, "longer": longer})
    assert suggestions.found() == []
    assert suggestions.longest_of(request("x" * 900)) is None
    suggestions.follow({**others, "longer": longer})
    assert suggestions.found() == []
    suggestions.follow(others)
    assert [(found.tokens, found.times) for found in suggestions.found()] == often


def times(it: Running) -> list[int]:
    return [found.times for found in it.daemon.statistics().suggestions or ()]


async def test_a_suggestion_goes_once_there_is_an_entry_of_it(path: Path) -> None:
    content = "Be brief. " * 60
    async with running(path, entry("a")) as it:
        await it.applied(1)
        for tail in ("one", "two", "three"):
            it.engine.request(request(rendered(content) + tail))
        assert times(it) == [3]
        it.save(entry("a"), entry("b", content))
        await it.applied(2)
        assert it.daemon.statistics().suggestions == ()
        it.save(entry("a"))
        await it.applied(3)
        assert times(it) == [3]
