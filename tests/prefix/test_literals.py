"""User texts made of what a chat template compares text with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmd.prefix.literals import literal_texts


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{% if c.startswith('<a>') and c.endswith(\"</a>\") %}", ["<a>x</a>", "<a> x", "x </a>"]),
        ("{{ c.split('</think>')[-1] }}", ["x </think> x"]),
        ("{{ c | replace('/no_think', '') }}", ["x /no_think x"]),
        ("{% if '/think' not in c %}", ["x /think x"]),
        ("{% if c == '[go]' or '{stop}' != c %}", ["[go]", "{stop}"]),
        ("{% set mark = '<|x|>' %}{% if c.startswith(mark) %}", ["<|x|>x<|x|>"]),
        (r"{{ c.split('\n---\n') }}", ["x \n---\n x"]),
        ("{% if m.role == 'user' and 'tool_calls' in m %}", []),
        ("", []),
    ],
)
def test_the_texts_are_what_the_template_asks_for(template: str, expected: list[str]) -> None:
    assert expected == literal_texts(template, 12)


def test_there_are_no_more_than_the_limit() -> None:
    assert literal_texts("".join(f"c.split('<{n}>')" for n in range(99)), 5) == [
        f"x <{n}> x" for n in range(5)
    ]


@given(st.text(alphabet="'\"\\{}%=!<>() .instartswithsplit\nud8N0", max_size=80), st.integers(0, 9))
def test_no_template_is_too_strange(template: str, limit: int) -> None:
    texts = literal_texts(template, limit)
    assert len(texts) <= limit
    assert "".join(texts).encode("utf-8").decode("utf-8") == "".join(texts)
