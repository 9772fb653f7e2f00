"""Beginnings that nobody declared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_daemon import Running, entry, running
from tests.test_traffic import rendered, request
from warmd.radix import pack
from warmd.suggestions import Suggestions


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "prompts.json"


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
