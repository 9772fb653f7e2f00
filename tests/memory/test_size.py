"""Sizes: what is read, what is refused and in which words, and what people are shown."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmd.memory.size import format_size, parse_limit, parse_size

FACTORS = {"B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4}
FACTORS |= {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("8_000_000", 8_000_000),
        ("12B", 12),
        ("12GB", 12_000_000_000),
        ("12 gb", 12_000_000_000),
        ("  800MiB ", 838_860_800),
        ("1.5KiB", 1536),
        ("1.1GB", 1_100_000_000),
        ("1_000.5 kb", 1_000_500),
        ("2TB", 2_000_000_000_000),
        ("1tib", 1_099_511_627_776),
        ("0.3B", 0),
        ("007B", 7),
        ("0.0", 0),
    ],
)
def test_a_size_is_read(text: str, size: int) -> None:
    assert parse_size(text) == size


NONSENSE = [
    "",
    " ",
    "lots",
    "GB",
    "-1",
    "-1GB",
    "+1GB",
    "nan",
    "nanGB",
    "inf",
    "1e9",
    "0x10",
    "1,5GB",
    "1.GB",
    ".5GB",
    "1..5GB",
    "1_GB",
    "_1GB",
    "1__0",
    "12G",
    "12GiBs",
    "12 GB 1",
    "1\nGB",
    "1GB\0",
    "١GB",
    "unlimited",
]


@pytest.mark.parametrize("text", NONSENSE)
def test_what_is_no_size_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"\Aexpected a size such as 12GB or 800MiB, found .*\Z") as caught:
        parse_size(text)
    assert f"expected a size such as 12GB or 800MiB, found {text!r}" == str(caught.value)


def test_a_long_text_is_not_repeated_whole() -> None:
    with pytest.raises(ValueError, match=r"found '9{40}…'\Z"):
        parse_size("9" * 5000)


@pytest.mark.parametrize(
    ("text", "limit"),
    [("auto", None), (" AUTO\n", None), ("12GB", 12_000_000_000), ("1MB", 1_000_000), ("1000000", 1_000_000)],
)
def test_a_limit_is_read(text: str, limit: int | None) -> None:
    assert parse_limit(text) == limit


@pytest.mark.parametrize("text", ["lots", "automatic", "-1GB", ""])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape("expected auto or a size such as 12GB or 800MiB, found ")):
        parse_limit(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("12", "12"), (" 12 ", "12"), ("999999", "999,999"), ("1_000", "1,000"), ("12.5", "12")],
)
def test_a_small_number_without_a_unit_is_a_slip(text: str, shown: str) -> None:
    told = re.escape(f"found {text!r}, which is {shown} bytes")
    with pytest.raises(ValueError, match=rf"\Aexpected a size such as 12GB or 800MiB, {told}\Z"):
        parse_size(text)
    with pytest.raises(ValueError, match=rf"\Aexpected auto or a size such as 12GB or 800MiB, {told}\Z"):
        parse_limit(text)


@pytest.mark.parametrize("text", ["0", "0GB", "0.0", "0.9B", "12 B", "999KB"])
def test_a_limit_of_next_to_nothing_is_refused(text: str) -> None:
    message = f"expected auto or a size of at least 1 MB, found {text!r}"
    with pytest.raises(ValueError, match=rf"\A{re.escape(message)}\Z"):
        parse_limit(text)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 KB"),
        (1_200_000_000, "1.2 GB"),
        (310_000_000, "310 MB"),
        (1_234_567, "1.23 MB"),
        (999_499, "999 KB"),
        (999_500, "1 MB"),
        (-1_200_000_000, "-1.2 GB"),
        (-5, "-5 B"),
        (12_345 * 10**12, "12300 TB"),
        (10**20, "100000000 TB"),
    ],
)
def test_people_are_shown_three_digits(size: int, text: str) -> None:
    assert format_size(size) == text


@given(st.integers(0, 10**24))
def test_a_number_of_bytes_reads_as_itself(size: int) -> None:
    assert parse_size(f"{size} B") == parse_size(f"{size:_}B") == size


@given(st.just(0) | st.integers(10**6, 10**24))
def test_a_number_without_a_unit_is_bytes(size: int) -> None:
    assert parse_size(str(size)) == size


@given(st.integers(0, 10**6), st.integers(0, 999), st.sampled_from(sorted(FACTORS)), st.data())
def test_a_decimal_number_is_exact(whole: int, thousandths: int, unit: str, data: st.DataObject) -> None:
    shown = data.draw(st.sampled_from([unit, unit.upper(), unit.lower(), f" {unit}"]))
    assert (
        parse_size(f"{whole}.{thousandths:03}{shown}") == (whole * 1000 + thousandths) * FACTORS[unit] // 1000
    )


@given(st.integers(0, 10**18))
def test_what_is_shown_reads_as_nearly_the_same(size: int) -> None:
    again = parse_size(format_size(size))
    assert abs(again - size) * 1000 <= size * 5
    assert format_size(again) == format_size(size)
    assert format_size(-size) == ("-" if size else "") + format_size(size)


@given(st.text(max_size=60))
def test_any_text_is_a_size_or_one_line(text: str) -> None:
    try:
        assert parse_size(text) >= 0
    except ValueError as error:
        message = str(error)
        assert message.startswith("expected a size such as ")
        assert len(message.splitlines()) == 1
