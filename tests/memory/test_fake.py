"""The scripted meter does what it is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from warmd.memory.fake import FakeMeter
from warmd.memory.readings import Meter, ReadingError


def test_fields_can_be_set_at_any_time() -> None:
    meter = FakeMeter(active=1, recommended=5)
    assert (meter.read().active, meter.read().recommended) == (1, 5)
    meter.active, meter.pressure = 2, 4
    assert meter.read() == replace(meter.reading(), active=2, pressure=4)
    assert meter.reads == 3


def test_queued_readings_come_once_and_first() -> None:
    meter = FakeMeter()
    usual = meter.reading()
    tight = replace(usual, others=15 * 10**9)
    meter.queue(tight, ReadingError("it", "gone"), usual)
    assert meter.read() == tight
    with pytest.raises(ReadingError, match="cannot read it: gone"):
        meter.read()
    assert [meter.read(), meter.read()] == [usual, usual]
    assert meter.reads == 4


def test_it_fails_until_told_otherwise() -> None:
    meter = FakeMeter()
    meter.fail("broken")
    for _ in range(2):
        with pytest.raises(ReadingError, match="cannot read the memory: broken"):
            meter.read()
    meter.fail(ReadingError("it", "gone"))
    with pytest.raises(ReadingError, match="cannot read it: gone"):
        meter.read()
    meter.fail(None)
    assert meter.read() == meter.reading()


def test_it_is_a_meter() -> None:
    meter: Meter = FakeMeter()
    assert meter.read().physical == 16 * 10**9
