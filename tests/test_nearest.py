"""What somebody may have meant who misspelled a name."""

from __future__ import annotations

import pytest

from warmd.nearest import nearest_of


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("systm", "system"),
        ("System", "system"),
        ("usre", "user"),
        ("asistant", "assistant"),
        ("toolkit", None),
        ("nosuch", None),
        ("", None),
        ("x" * 100_000, None),
    ],
)
def test_only_what_is_near_is_named(name: str, expected: str | None) -> None:
    assert nearest_of(name, ("system", "user", "assistant", "tool")) == expected


def test_of_nothing_nothing_is_near() -> None:
    assert nearest_of("a", ()) is None
