"""The limit, the headroom and the snapshot, as pure functions of a reading."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.patience import PATIENCE
from warmd.errors import WarmdError
from warmd.memory.fake import FakeMeter
from warmd.memory.readings import Limit, Memory, Reading, ReadingError, headroom, look

GB = 10**9
AUTO = Limit(size=None, reserve=0)
SIZES = st.integers(0, 1 << 50)
READINGS = st.builds(
    Reading,
    active=SIZES,
    pool=SIZES,
    footprint=SIZES,
    physical=SIZES,
    others=SIZES,
    recommended=st.none() | SIZES,
    pressure=st.sampled_from([1, 2, 4]),
)
LIMITS = st.builds(Limit, size=st.none() | st.integers(1, 1 << 50), reserve=SIZES)


@pytest.mark.parametrize(
    ("physical", "others", "recommended", "limit"),
    [
        (100 * GB, 0, None, 80 * GB),
        (100 * GB, 30 * GB, None, 50 * GB),
        (100 * GB, 30 * GB, 75 * GB, 50 * GB),
        (100 * GB, 0, 75 * GB, 75 * GB),
        (100 * GB, 0, 0, 0),
        (100 * GB, 80 * GB, None, 0),
        (100 * GB, 95 * GB, None, 0),
        (100 * GB, 95 * GB, 75 * GB, 0),
        (0, 0, None, 0),
    ],
)
def test_auto_follows_the_machine(physical: int, others: int, recommended: int | None, limit: int) -> None:
    reading = FakeMeter(physical=physical, others=others, recommended=recommended).read()
    assert AUTO.bytes(reading) == limit


def test_a_size_is_the_limit_whatever_the_machine_says() -> None:
    assert Limit(size=7, reserve=0).bytes(FakeMeter(physical=5, others=5, recommended=1).read()) == 7


def test_a_limit_is_parsed_from_the_settings() -> None:
    assert Limit.parse("auto", "512MiB") == Limit(size=None, reserve=512 << 20)
    assert Limit.parse("12GB", "0") == Limit(size=12 * GB, reserve=0)


@pytest.mark.parametrize(("limit", "reserve"), [("lots", "0"), ("0", "0"), ("1GB", "some"), ("auto", "auto")])
def test_a_limit_that_is_none_is_refused(limit: str, reserve: str) -> None:
    with pytest.raises(ValueError, match=r"\Aexpected "):
        Limit.parse(limit, reserve)


@pytest.mark.parametrize(
    ("active", "pool", "footprint", "left"),
    [
        (2 * GB, 1 * GB, 1 * GB, 6 * GB),  # mlx holds pages that the system does not count yet
        (2 * GB, 1 * GB, 5 * GB, 4 * GB),  # the process holds more than arrays
        (9 * GB, 0, 0, 0),
        (9 * GB, 3 * GB, 0, -3 * GB),
    ],
)
def test_headroom_is_what_the_larger_count_leaves(active: int, pool: int, footprint: int, left: int) -> None:
    reading = FakeMeter(active=active, pool=pool, footprint=footprint).read()
    assert headroom(reading, Limit(size=10 * GB, reserve=1 * GB)) == left


@given(READINGS, LIMITS)
def test_what_holds_of_every_reading(reading: Reading, limit: Limit) -> None:
    assert limit.bytes(reading) >= 0
    left = headroom(reading, limit)
    assert left + reading.active + reading.pool + limit.reserve <= limit.bytes(reading)
    assert left + reading.footprint + limit.reserve <= limit.bytes(reading)
    if limit.size is None:
        assert limit.bytes(reading) + reading.others <= max(reading.physical, reading.others)
        assert reading.recommended is None or limit.bytes(reading) <= reading.recommended
    memory = Memory.of(reading, limit, warm=3)
    assert (memory.headroom, memory.limit, memory.warm) == (left, limit.bytes(reading), 3)
    assert memory.error is None


def test_a_look_tells_what_was_read() -> None:
    meter = FakeMeter(active=3 * GB, pool=1 * GB, footprint=5 * GB, pressure=2)
    assert asdict(look(meter, Limit(size=9 * GB, reserve=1 * GB), warm=7)) == {
        "limit": 9 * GB,
        "active": 3 * GB,
        "cache": 1 * GB,
        "warm": 7,
        "headroom": 3 * GB,
        "pressure": 2,
        "reserve": 1 * GB,
        "spare": 0,
        "ordinary": 0,
        "error": None,
    }


@pytest.mark.parametrize("limit", [AUTO, Limit(size=9 * GB, reserve=0)])
def test_a_look_that_fails_leaves_no_headroom(limit: Limit) -> None:
    meter = FakeMeter()
    meter.fail("the meter is broken")
    memory = look(meter, limit, warm=7)
    assert memory == Memory(
        limit=limit.size or 0,
        active=0,
        cache=0,
        warm=7,
        headroom=0,
        pressure=0,
        error="cannot read the memory: the meter is broken",
    )


def test_a_reading_error_can_be_shown_to_people() -> None:
    error = ReadingError("the footprint", "no such file")
    assert isinstance(error, WarmdError)
    assert str(error) == "cannot read the footprint: no such file"


def test_a_fault_of_a_meter_is_not_taken_for_a_failed_look() -> None:
    class Faulty:
        def read(self) -> Reading:
            raise TypeError("a bug")

    with pytest.raises(TypeError, match="a bug"):
        look(Faulty(), AUTO, warm=0)


def test_nothing_here_imports_mlx() -> None:
    program = (
        "import sys, warmd.memory.fake, warmd.memory.macos, warmd.memory.system, warmd.config\n"
        "assert not {'mlx', 'mlx_lm', 'transformers', 'anyio'} & set(sys.modules), sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE)
