"""What Linux says, from files as the kernel writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from warmd.memory.linux import Linux
from warmd.memory.readings import ReadingError
from warmd.memory.system import System

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
UNLIMITED = 9223372036854771712  # as version 1 of cgroups writes it
MACHINE = {
    "proc/meminfo": "MemTotal:       16777216 kB\nMemFree:          524288 kB\nMemAvailable:   10485760 kB\n",
    "proc/self/status": "VmRSS:\t1600000 kB\nRssAnon:\t1048000 kB\nRssFile:\t551424 kB\nRssShmem:\t 576 kB\n",
}
OWN = 1_048_576 * KIB


def machine(root: Path, files: Mapping[str, object]) -> System:
    """The system of a machine with 16 GiB, 10 of them available and 1 this process's, and these files."""
    for name, content in {**MACHINE, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(content))
    return System(Linux(root))


def v2(group: str, limit: object, use: int, files: int = 0) -> dict[str, object]:
    """The files of a version 2 group that uses so many bytes, so many of them page cache of files."""
    folder = f"sys/fs/cgroup/{group}"
    statistics = f"anon 1\nfile {files}\nkernel 5\ninactive_file {files}\nactive_file 0\nfile_mapped 7\n"
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.current": f"{use}\n",
        f"{folder}/memory.stat": statistics,
    }


def v1(group: str, limit: int, use: int, files: int = 0) -> dict[str, object]:
    """The same of version 1."""
    folder = f"sys/fs/cgroup/memory/{group}"
    statistics = f"cache 9\nactive_file 3\ntotal_inactive_file 0\ntotal_active_file {files}\n"
    return {
        f"{folder}/memory.limit_in_bytes": f"{limit}\n",
        f"{folder}/memory.usage_in_bytes": f"{use}\n",
        f"{folder}/memory.stat": statistics,
    }


def test_a_machine_without_cgroups(tmp_path: Path) -> None:
    system = machine(tmp_path, {})
    assert system.physical() == 16 * GIB
    assert system.footprint() == OWN
    assert system.others() == 5 * GIB
    assert system.pressure() == 1


def test_others_are_never_negative(tmp_path: Path) -> None:
    meminfo = "MemTotal: 16777216 kB\nMemAvailable: 16777216 kB\n"
    assert machine(tmp_path, {"proc/meminfo": meminfo}).others() == 0


V2 = {"proc/self/cgroup": "0::/a/b\n"}
V1 = {"proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/a/b\n0::/\n"}


@pytest.mark.parametrize(
    ("files", "physical", "others"),
    [
        pytest.param({"proc/self/cgroup": "0::/\n"}, 16 * GIB, 5 * GIB, id="v2 root, which has no files"),
        pytest.param(V2 | v2("a/b", "max", GIB), 16 * GIB, 5 * GIB, id="v2 without a limit"),
        pytest.param(V2 | v2("a/b", 4 * GIB, 3 * GIB), 4 * GIB, 2 * GIB, id="v2"),
        pytest.param(V2 | v2("a/b", 4 * GIB, 3 * GIB, files=GIB), 4 * GIB, GIB, id="v2, files do not count"),
        pytest.param(V2 | v2("a/b", 4 * GIB, GIB // 2), 4 * GIB, 0, id="v2, own pages charged elsewhere"),
        pytest.param(V2 | v2("a/b", 2 * GIB, 3 * GIB), 2 * GIB, GIB, id="v2, over its limit"),
        pytest.param(V2 | v2("a/b", 12 * GIB, 2 * GIB), 12 * GIB, GIB, id="v2, the machine is tighter"),
        pytest.param(V2 | v2("a/b", 15 * GIB, 2 * GIB), 15 * GIB, 4 * GIB, id="v2, much tighter"),
        pytest.param(V2 | v2("a/b", 64 * GIB, GIB), 16 * GIB, 5 * GIB, id="v2, more than there is"),
        pytest.param(V2 | v2("a", 4 * GIB, 3 * GIB), 4 * GIB, 2 * GIB, id="v2, the parent's limit"),
        pytest.param(
            V2 | v2("a/b", 6 * GIB, GIB) | v2("a", 8 * GIB, 7 * GIB),
            6 * GIB,
            4 * GIB,
            id="v2, neighbours fill the parent",
        ),
        pytest.param(
            V2 | v2("", 4 * GIB, 3 * GIB), 4 * GIB, 2 * GIB, id="v2, the host's path in a container"
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/../../x y\n"} | v2("x y", 4 * GIB, 3 * GIB),
            4 * GIB,
            2 * GIB,
            id="v2, outside of the namespace's root",
        ),
        pytest.param(V1 | v1("a/b", 4 * GIB, 3 * GIB), 4 * GIB, 2 * GIB, id="v1"),
        pytest.param(V1 | v1("a/b", 4 * GIB, 3 * GIB, files=GIB), 4 * GIB, GIB, id="v1, files do not count"),
        pytest.param(
            V1 | v1("", 4 * GIB, 3 * GIB), 4 * GIB, 2 * GIB, id="v1, the host's path in a container"
        ),
        pytest.param(
            V1 | v1("a/b", UNLIMITED, GIB) | v1("", UNLIMITED, GIB),
            16 * GIB,
            5 * GIB,
            id="v1 without a limit",
        ),
        pytest.param(
            {"proc/self/cgroup": "4:memory:/a\n0::/\n"} | v2("", 2 * GIB, GIB) | v1("a", 4 * GIB, 3 * GIB),
            2 * GIB,
            0,
            id="both versions",
        ),
    ],
)
def test_cgroups(tmp_path: Path, files: dict[str, object], physical: int, others: int) -> None:
    system = machine(tmp_path, files)
    assert (system.physical(), system.others()) == (physical, others)


def test_a_name_that_is_not_utf_8(tmp_path: Path) -> None:
    system = machine(tmp_path, {})
    (tmp_path / "proc/self/cgroup").write_bytes(b"0::/caf\xe9\n")
    assert system.physical() == 16 * GIB


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {"proc/meminfo": ""},
            "cannot read the physical memory: ROOT/proc/meminfo: expected a line MemTotal",
        ),
        (
            {"proc/meminfo": "MemTotal: much kB\n"},
            "cannot read the physical memory: ROOT/proc/meminfo: expected a whole number, found 'much'",
        ),
        (
            {"proc/meminfo": "MemTotal: 1 kB\n"},
            "cannot read the available memory: ROOT/proc/meminfo: expected a line MemAvailable",
        ),
        (
            {"proc/self/status": "VmRSS: 1 kB\n"},
            "cannot read the footprint of this process: ROOT/proc/self/status: expected a line RssAnon",
        ),
        (
            V2 | v2("a/b", "plenty", 1),
            "cannot read the physical memory: ROOT/sys/fs/cgroup/a/b/memory.max: "
            "expected a whole number, found 'plenty'",
        ),
        (
            V2 | {"sys/fs/cgroup/a/b/memory.max": "1"},
            "cannot read the physical memory: ROOT/sys/fs/cgroup/a/b/memory.stat: No such file or directory",
        ),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(
    tmp_path: Path, files: dict[str, object], expected: str
) -> None:
    system = machine(tmp_path, files)
    with pytest.raises(ReadingError) as caught:
        system.reading(active=0, pool=0, recommended=None)
    assert expected == str(caught.value).replace(str(tmp_path), "ROOT")


def test_a_machine_without_proc(tmp_path: Path) -> None:
    with pytest.raises(ReadingError, match=r"meminfo: No such file or directory\Z"):
        System(Linux(tmp_path)).physical()
