"""What macOS says about memory, through ctypes.

Never run on macOS so far: the tests call it with a stand-in for the C library. Names, structure and value
types are those of the public headers (`libproc.h`, `sys/resource.h`, `sys/sysctl.h`) and of XNU's sources.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

# libproc and sysctl are both in it, and every process has it loaded.
_LIBRARY = "/usr/lib/libSystem.B.dylib"
_RUSAGE_INFO_V0 = 0
_AVAILABLE = ("page_free_count", "page_pageable_external_count", "page_purgeable_count")


class RusageInfoV0(ctypes.Structure):
    """`struct rusage_info_v0`: the oldest, so every release fills it and none writes beyond its end."""

    _fields_ = (
        ("ri_uuid", ctypes.c_uint8 * 16),
        ("ri_user_time", ctypes.c_uint64),
        ("ri_system_time", ctypes.c_uint64),
        ("ri_pkg_idle_wkups", ctypes.c_uint64),
        ("ri_interrupt_wkups", ctypes.c_uint64),
        ("ri_pageins", ctypes.c_uint64),
        ("ri_wired_size", ctypes.c_uint64),
        ("ri_resident_size", ctypes.c_uint64),
        ("ri_phys_footprint", ctypes.c_uint64),
        ("ri_proc_start_abstime", ctypes.c_uint64),
        ("ri_proc_exit_abstime", ctypes.c_uint64),
    )


class MacOS:
    """Memory of a Mac, in bytes. Methods raise OSError or ValueError.

    Args:
        library: In place of the system's C library.
    """

    def __init__(self, library: Any = None) -> None:
        self._library = library

    def physical(self) -> int:
        """All memory of the machine."""
        return self._sysctl("hw.memsize", ctypes.c_uint64())

    def available(self) -> int:
        """What new demand can get without hurting anybody: pages that are free, a file's, or purgeable.

        Not `kern.memorystatus_level`: it takes all that is neither wired nor compressed for available, the
        memory of idle programs included.
        """
        pages = sum(self._sysctl(f"vm.{name}", ctypes.c_uint32()) for name in _AVAILABLE)
        return pages * mmap.PAGESIZE

    def footprint(self) -> int:
        """Physical footprint of this process, as Activity Monitor and the kernel's memory killer count it."""
        usage = RusageInfoV0()
        self._call("proc_pid_rusage", "proc_pid_rusage", os.getpid(), _RUSAGE_INFO_V0, ctypes.byref(usage))
        return int(usage.ri_phys_footprint)

    def pressure(self) -> int:
        """1 normal, 2 warning, 4 critical."""
        level = self._sysctl("kern.memorystatus_vm_pressure_level", ctypes.c_int())
        if level not in (1, 2, 4):
            raise ValueError(f"kern.memorystatus_vm_pressure_level: expected 1, 2 or 4, found {level}")
        return level

    def _sysctl(self, name: str, value: ctypes.c_int | ctypes.c_uint32 | ctypes.c_uint64) -> int:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        arguments = (name.encode(), ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0))
        self._call("sysctlbyname", name, *arguments)
        if size.value != ctypes.sizeof(value):
            raise ValueError(f"{name}: expected {ctypes.sizeof(value)} bytes, found {size.value}")
        return value.value

    def _call(self, function: str, subject: str, *arguments: Any) -> None:
        if self._library is None:
            self._library = ctypes.CDLL(_LIBRARY, use_errno=True)
        try:
            called = getattr(self._library, function)
        except AttributeError:
            raise OSError(f"{_LIBRARY}: no symbol {function}") from None
        if called(*arguments) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), subject)
