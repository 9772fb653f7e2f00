"""Finding out that another library has moved what we hook into."""

from __future__ import annotations

from warmd.engines.seams import find_missing


def test_what_is_where_it_is_expected_is_not_named() -> None:
    assert find_missing((("json:dumps", ("obj", "indent")), ("json:JSONDecoder.decode", ()))) == []


def test_what_has_moved_and_what_has_other_parameters_is_named() -> None:
    moved = (("json:moved_away", ()), ("json.gone:run", ()), ("json:dumps", ("obj", "colour")))
    assert find_missing(moved) == ["json.moved_away", "json.gone.run", "json.dumps(colour)"]
