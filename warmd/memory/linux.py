"""What Linux says about memory, a container's limits included."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class _Version:
    """How a version of cgroups names things. `files`: what memory.stat calls page cache of files."""

    mount: str
    limit: str
    use: str
    files: tuple[str, ...]


_V1 = _Version(
    "sys/fs/cgroup/memory",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
)
_V2 = _Version("sys/fs/cgroup", "memory.max", "memory.current", ("inactive_file", "active_file"))
# Version 1 writes the largest multiple of the page size that fits where version 2 writes "max".
_UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True)
class _Group:
    """A cgroup with a limit. Bytes."""

    limit: int
    use: int


class Linux:
    """Memory of a Linux machine or container, in bytes. Methods raise OSError or ValueError.

    Args:
        root: The folder in which `proc` and `sys` are.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def physical(self) -> int:
        """All memory of the machine, or what the container may use of it."""
        total = _kilobytes(self._root / "proc/meminfo", "MemTotal")
        return min([total, *(group.limit for group in self._groups())])

    def available(self) -> int:
        """What new demand can get without swapping, in the machine and every cgroup around this process."""
        free = _kilobytes(self._root / "proc/meminfo", "MemAvailable")
        return max(0, min([free, *(group.limit - group.use for group in self._groups())]))

    def footprint(self) -> int:
        """Resident memory of this process without the pages of files.

        Those are dropped and read again when memory is short, so they hurt nobody. Shared memory cannot be.
        """
        status = self._root / "proc/self/status"
        return _kilobytes(status, "RssAnon", "RssShmem")

    def pressure(self) -> int:
        """Always 1, normal: Linux has no such level, and `available` already tells of shortage."""
        return 1

    def _groups(self) -> Iterator[_Group]:
        """The cgroups with a limit around this process; where none can be read, the machine counts."""
        try:
            lines = _read(self._root / "proc/self/cgroup").splitlines()
        except OSError:
            return
        for line in lines:
            number, controllers, path = line.split(":", 2)
            if number == "0":
                yield from self._limited(_V2, path)
            elif "memory" in controllers.split(","):
                yield from self._limited(_V1, path)

    def _limited(self, version: _Version, path: str) -> Iterator[_Group]:
        mount = self._root / version.mount
        # Within a container the path can be the host's, which is not there: its parents are tried up to the
        # mount point, which is then the container's own group.
        folder = mount.joinpath(*(part for part in path.split("/") if part not in ("", "..")))
        for group in (folder, *folder.parents):
            limit = _limit(group / version.limit)
            if limit is not None:
                yield _Group(limit, _use(group, version))
            if group == mount:
                return


def _limit(path: Path) -> int | None:
    try:
        text = _read(path)
    except OSError:
        return None
    limit = None if text.strip() == "max" else _whole(path, text)
    return None if limit is None or limit >= _UNLIMITED else limit


def _use(group: Path, version: _Version) -> int:
    """Bytes a cgroup holds, without pages of files: those count as free, as they do in MemAvailable."""
    path = group / "memory.stat"
    statistics = dict(line.split(" ", 1) for line in _read(path).splitlines() if " " in line)
    files = sum(_whole(path, statistics.get(name, "0")) for name in version.files)
    return max(0, _whole(group / version.use, _read(group / version.use)) - files)


def _kilobytes(path: Path, *keys: str) -> int:
    """The sum of the values of lines such as ``MemTotal:  24683652 kB``, in bytes."""
    values = dict(line.split(":", 1) for line in _read(path).splitlines() if ":" in line)
    for key in keys:
        if key not in values:
            raise ValueError(f"{path}: expected a line {key}")
    return sum(_whole(path, values[key].removesuffix("kB")) for key in keys) * 1024


def _whole(path: Path, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{path}: expected a whole number, found {text.strip()!r}") from None


def _read(path: Path) -> str:
    # A cgroup may be called anything.
    return path.read_text("utf-8", "surrogateescape")
