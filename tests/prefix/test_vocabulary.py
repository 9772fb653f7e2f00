"""User texts that would merge with what precedes them."""

from __future__ import annotations

import pytest

from warmd.prefix.vocabulary import (
    Boundary,
    Straddler,
    find_boundary,
    marker_texts,
    raw_to_text,
    straddlers,
    vocabulary_by_id,
)


def test_the_vocabulary_is_ordered_by_id_with_holes_empty() -> None:
    assert vocabulary_by_id({"c": 3, "a": 0, "b": 1}) == ("a", "b", "", "c")
    assert vocabulary_by_id({}) == ()


@pytest.mark.parametrize(
    ("raw", "byte_level", "text"),
    [
        ("ĠhiĊ", True, " hi\n"),
        ("ä½ł", True, "你"),
        ("ä½", True, ""),
        ("▁hi", False, " hi"),
        ("<｜User｜>", True, "<｜User｜>"),
    ],
)
def test_raw_token_strings_become_text(raw: str, byte_level: bool, text: str) -> None:
    assert text == raw_to_text(raw, byte_level=byte_level)


def test_the_boundary_is_where_the_renders_part() -> None:
    vocabulary = ("<|u|>", "user", "Ċ", "a", "b", "Ċa")
    renders = ([0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 5])
    assert Boundary(kept=("<|u|>", "user"), dropped="Ċ") == find_boundary(renders, 2, vocabulary)


def test_the_tail_ends_at_a_special_token() -> None:
    assert Boundary(("text", "<|u|>", "user"), "Ċ").tail == "userĊ"


@pytest.mark.parametrize(("depth", "tokens"), [(0, 0), (1, 0), (2, 1), (5, 1), (6, 2), (99, 3)])
def test_a_deep_merge_reaches_several_tokens(depth: int, tokens: int) -> None:
    assert tokens == Boundary(("a", "b", "user"), "Ċ").tokens_within(depth)


def test_only_merges_that_reach_into_kept_tokens_are_found() -> None:
    vocabulary = ("ĊĊ", "rĊĊ", "rĊx", "userĊz", "<|end|>", "other")
    expected = [Straddler(5, "z"), Straddler(2, "\n"), Straddler(2, "x")]
    assert expected == straddlers(Boundary(("<|u|>", "user"), "Ċ"), (*vocabulary, "Ġ"))


def test_texts_with_new_first_characters_come_first() -> None:
    found = straddlers(Boundary((":",), ""), (":aa", ":ab", ":b", ":ac", ":c"))
    assert [straddler.text for straddler in found] == ["aa", "b", "c", "ab", "ac"]


def test_reserved_markers_that_differ_in_a_number_count_once() -> None:
    vocabulary = ("<|r_0|>", "<|r_1|>", "<mask>", "<0x0A>", "[INST]", "a", "<>", "[x]")
    assert marker_texts(vocabulary, "{{ '<mask>' }}", 9) == ["<mask>", "<|r_0|>", "[INST]"]
