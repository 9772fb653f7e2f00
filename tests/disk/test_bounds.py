"""Which files go."""

from __future__ import annotations

import pytest

from tests.disk.made import make_record
from warmd.disk.bounds import DEFAULT_MAX_BYTES, expired, most, parse_max_bytes, surplus

OLD, MIDDLE, NEW = (make_record([number, 1], now=float(number), size=1000) for number in (10, 20, 30))
SIZE = OLD.nbytes


def test_what_has_not_been_wanted_for_long_goes_but_what_is_wanted_stays() -> None:
    assert expired([MIDDLE, OLD, NEW], {MIDDLE.name}, 25.0) == [OLD]
    assert expired([OLD, NEW], set(), 10.0) == []


def test_beyond_the_bound_the_oldest_go_first_and_what_is_wanted_stays() -> None:
    every = [MIDDLE, NEW, OLD]
    assert surplus(every, set(), 3 * SIZE) == []
    assert surplus(every, set(), 3 * SIZE - 1) == [OLD]
    assert surplus(every, set(), SIZE) == [OLD, MIDDLE]
    assert surplus(every, {OLD.name}, 2 * SIZE) == [MIDDLE]
    assert surplus(every, {record.name for record in every}, 0) == []


def test_the_bound_is_what_is_set_or_goes_by_the_disk() -> None:
    assert most(5, 10**15, 0) == 5
    assert most(None, 10**15, 0) == DEFAULT_MAX_BYTES
    # What is there already counts as free: or it would shrink the bound.
    assert most(None, 7 * 10**9, 3 * 10**9) == 10**9


@pytest.mark.parametrize(("text", "size"), [("auto", None), (" AUTO ", None), ("2GB", 2 * 10**9), ("0", 0)])
def test_the_bound_is_auto_or_a_size(text: str, size: int | None) -> None:
    assert size == parse_max_bytes(text)


def test_anything_else_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^expected auto or a size such as 12GB or 800MiB, found 'much'$"):
        parse_max_bytes("much")
