"""What this very machine says."""

from __future__ import annotations

import mmap
import os
import sys

import psutil
import pytest

from warmd.memory.readings import ReadingError
from warmd.memory.system import System

MB = 10**6


def test_the_numbers_of_this_machine_are_plausible() -> None:
    reading = System().reading(active=3, pool=2, recommended=1)
    assert (reading.active, reading.pool, reading.recommended) == (3, 2, 1)
    assert 1 * MB < reading.footprint < reading.physical
    assert 256 * MB < reading.physical <= psutil.virtual_memory().total
    assert 0 <= reading.others < reading.physical
    assert reading.pressure in (1, 2, 4)


def test_the_footprint_follows_what_is_allocated() -> None:
    system = System()
    # Pages of its own: the allocator of the process may hand out freed ones, and keep what is freed. Random,
    # so that no system can compress or share them.
    random_bytes = os.urandom(MB)
    before = system.footprint()
    with mmap.mmap(-1, 50 * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        for offset in range(0, 50 * MB, MB):
            block[offset : offset + MB] = random_bytes
        during = system.footprint()
    after = system.footprint()
    assert 45 * MB < during - before < 70 * MB
    assert during - after > 45 * MB


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_footprint_is_what_psutil_calls_resident_less_shared() -> None:
    own = psutil.Process().memory_info()
    # Linux counts in batches for each CPU.
    assert System().footprint() == pytest.approx(own.rss - own.shared, abs=16 * MB)


def test_each_look_is_a_new_one() -> None:
    class Growing:
        def __init__(self) -> None:
            self.own = 0

        def physical(self) -> int:
            return 100

        def available(self) -> int:
            return 30

        def footprint(self) -> int:
            self.own += 1
            return self.own

        def pressure(self) -> int:
            return 4

    system = System(Growing())
    assert [system.reading(active=0, pool=0, recommended=None).others for _ in range(3)] == [69, 68, 67]


@pytest.mark.parametrize("platform", ["win32", "freebsd14"])
def test_a_system_that_nobody_knows(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(ReadingError) as caught:
        System().footprint()
    assert (
        str(caught.value)
        == f"cannot read the footprint of this process: expected macOS or Linux, found {platform}"
    )
