"""What macOS says, through a stand-in for its C library that is called as C functions are."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from types import SimpleNamespace
from typing import Any

import pytest

from warmd.memory.macos import MacOS, RusageInfoV0
from warmd.memory.readings import ReadingError
from warmd.memory.system import System

GIB = 1 << 30
PRESSURE = "kern.memorystatus_vm_pressure_level"

_SYSCTL = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.c_void_p,
    ctypes.c_size_t,
    use_errno=True,
)
_RUSAGE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.POINTER(RusageInfoV0), use_errno=True
)


PAGES = {
    "free": 1 * GIB // mmap.PAGESIZE,
    "pageable_external": 5 * GIB // mmap.PAGESIZE,
    "purgeable": 2 * GIB // mmap.PAGESIZE,
}


def library(**changes: tuple[int, int] | None) -> Any:
    """A library in which each sysctl is a width in bytes and a value; None: there is no such sysctl.

    Dots in names are written as two underscores.
    """
    known = {"hw.memsize": (8, 16 * GIB), PRESSURE: (4, 2)}
    known |= {f"vm.page_{what}_count": (4, count) for what, count in PAGES.items()}
    known |= {name.replace("__", "."): value for name, value in changes.items()}  # type: ignore[misc]

    def sysctl(name: bytes, value: int, size: Any, new: int | None, new_size: int) -> int:
        assert (new, new_size) == (None, 0), "nothing is to be changed"
        entry = known.get(name.decode())
        if entry is None:
            ctypes.set_errno(errno.ENOENT)
            return -1
        width, number = entry
        if size[0] < width:
            ctypes.set_errno(errno.ENOMEM)
            return -1
        data = number.to_bytes(width, "little", signed=True)
        ctypes.memmove(value, data, width)
        size[0] = width
        return 0

    def rusage(pid: int, flavor: int, usage: Any) -> int:
        if (pid, flavor) != (os.getpid(), 0):
            ctypes.set_errno(errno.ESRCH)
            return -1
        usage[0].ri_resident_size = 9 * GIB
        usage[0].ri_phys_footprint = 2 * GIB
        return 0

    return SimpleNamespace(sysctlbyname=_SYSCTL(sysctl), proc_pid_rusage=_RUSAGE(rusage))


def system(**changes: tuple[int, int] | None) -> System:
    """The system of a Mac with 16 GiB, half of them available and 2 GiB this process's."""
    return System(MacOS(library(**changes)))


def test_a_mac() -> None:
    mac = system()
    assert mac.physical() == 16 * GIB
    assert mac.footprint() == 2 * GIB
    assert mac.others() == 6 * GIB
    assert mac.pressure() == 2


def test_others_are_never_negative() -> None:
    assert system(vm__page_free_count=(4, 16 * GIB // mmap.PAGESIZE)).others() == 0


def test_the_structure_is_laid_out_as_in_the_header() -> None:
    assert ctypes.sizeof(RusageInfoV0) == 16 + 10 * 8
    assert RusageInfoV0.ri_phys_footprint.offset == 16 + 7 * 8


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"hw__memsize": None}, "cannot read the physical memory: hw.memsize: No such file or directory"),
        ({"hw__memsize": (4, 1)}, "cannot read the physical memory: hw.memsize: expected 8 bytes, found 4"),
        (
            {"vm__page_purgeable_count": (8, 1)},
            "cannot read the available memory: vm.page_purgeable_count: Cannot allocate memory",
        ),
        (
            {"vm__page_free_count": None},
            "cannot read the available memory: vm.page_free_count: No such file or directory",
        ),
        (
            {"kern__memorystatus_vm_pressure_level": (4, 0)},
            f"cannot read the memory pressure: {PRESSURE}: expected 1, 2 or 4, found 0",
        ),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(
    changes: dict[str, tuple[int, int] | None], expected: str
) -> None:
    with pytest.raises(ReadingError) as caught:
        system(**changes).reading(active=0, pool=0, recommended=None)
    assert expected == str(caught.value)


def test_a_call_that_the_kernel_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    refused = library()
    monkeypatch.undo()
    monkeypatch.setattr("warmd.memory.macos._RUSAGE_INFO_V0", 99)
    with pytest.raises(ReadingError, match="footprint of this process: proc_pid_rusage: No such process"):
        System(MacOS(refused)).footprint()


@pytest.mark.parametrize("symbol", ["sysctlbyname", "proc_pid_rusage"])
def test_a_missing_symbol(symbol: str) -> None:
    incomplete = library()
    delattr(incomplete, symbol)
    with pytest.raises(ReadingError, match=rf": /usr/lib/libSystem.B.dylib: no symbol {symbol}\Z"):
        System(MacOS(incomplete)).reading(active=0, pool=0, recommended=None)


@pytest.mark.skipif(os.uname().sysname == "Darwin", reason="the library is there")
def test_a_missing_library() -> None:
    with pytest.raises(ReadingError, match=r"\Acannot read the physical memory: /usr/lib/libSystem.B.dylib"):
        System(MacOS()).physical()
