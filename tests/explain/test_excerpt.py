"""The texts around the first difference."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warmd.explain.excerpt import WIDTH, make_excerpt, visible


def test_about_sixty_characters_on_each_side() -> None:
    excerpt = make_excerpt("x" * 100 + "a" * 100, "x" * 100 + "b" * 10)
    assert (excerpt.before, excerpt.entry, excerpt.request) == ("x" * WIDTH, "a" * WIDTH, "b" * 10)
    assert excerpt.offset == 100


def test_an_accent_stays_with_its_letter() -> None:
    excerpt = make_excerpt("cafe\u0301", "cafe\u0300")
    assert (excerpt.before, excerpt.entry, excerpt.request) == ("caf", "e\u0301", "e\u0300")


def test_control_characters_are_seen_and_obeyed_by_no_terminal() -> None:
    assert visible("a\tb\r\n\x1b[31m\x7f") == "a␉b␍␊␛[31m␡"
    assert visible("\u200b\u202e\u00a0\ufeff\x9b") == "<U+200B><U+202E><U+00A0><U+FEFF><U+009B>"
    assert visible("naïve 你好 😀 x") == "naïve 你好 😀 x"


@given(st.text(), st.text(), st.text())
def test_the_parts_belong_to_the_texts(common: str, left: str, right: str) -> None:
    entry, request = common + left, common + right
    excerpt = make_excerpt(entry, request)
    assert entry[: excerpt.offset] == request[: excerpt.offset]
    assert entry[: excerpt.offset].endswith(excerpt.before)
    assert entry[excerpt.offset :].startswith(excerpt.entry)
    assert request[excerpt.offset :].startswith(excerpt.request)
    if entry != request:
        assert excerpt.entry != excerpt.request


@given(st.text())
def test_everything_visible_is_printable(text: str) -> None:
    assert visible(text).isprintable()
