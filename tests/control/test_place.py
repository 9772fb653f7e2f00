"""The state folder, its one owner, and where the socket is."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.patience import PATIENCE
from warmd.control.client import ask_at
from warmd.control.errors import AnotherDaemonError, ControlFailedError, NoSocketError
from warmd.control.folder import claimed
from warmd.control.place import LONGEST_PATH, SOCKET_NAME, is_moved, socket_path, state_folder
from warmd.control.run import control_of
from warmd.control.server import Handler
from warmd.errors import UsageError
from warmd.events import Event
from warmd.settings import StateSettings


async def echo(arguments: dict[str, Any]) -> Any:
    return arguments


HANDLERS: dict[str, Handler] = {"echo": echo}


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="warmd-test-") as name:
        yield Path(name).resolve() / "state"


@pytest.fixture
def deep(folder: Path) -> Iterator[Path]:
    """A state folder whose path is too long for a socket."""
    found = folder / ("x" * 60) / ("y" * 60)
    yield found
    shutil.rmtree(socket_path(found).parent, ignore_errors=True)


def events_of(folder: Path) -> list[tuple[str, Any]]:
    """What a daemon's control tells until it answers, or says that it will not."""
    return anyio.run(_events_of, folder)


async def _events_of(folder: Path) -> list[tuple[str, Any]]:
    events: list[Event] = []
    with anyio.fail_after(PATIENCE), control_of(folder, events.append) as control:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(control.serve, HANDLERS)
            while not (any(event.name == "control.failed" for event in events) or await answers(folder)):  # noqa: ASYNC110
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
    return [(event.name, *event.fields.values()) for event in events]


async def answers(folder: Path) -> bool:
    try:
        await anyio.to_thread.run_sync(ask_at, socket_path(folder), "echo", {})
    except Exception:  # noqa: BLE001 - not yet
        return False
    return True


def test_the_configured_folder_counts_and_else_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/nobody")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert state_folder(StateSettings("~/x")) == Path("/home/nobody/x")
    found = state_folder(StateSettings())
    assert found.is_relative_to("/home/nobody")
    assert "warmd" in found.parts
    with pytest.raises(UsageError, match="no home folder"):
        state_folder(StateSettings("~no-such-user-of-warmd/x"))


def test_a_folder_has_one_socket_however_it_is_spelled(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    spellings = [f"{tmp_path}/a", f"{tmp_path}/b/../a/", f"{tmp_path}/link/a"]
    assert len({socket_path(state_folder(StateSettings(path))) for path in spellings}) == 1


@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_a_socket_is_in_its_folder_while_the_path_fits(excess: int) -> None:
    length = LONGEST_PATH - len(SOCKET_NAME) - 2 + excess
    folder = Path("/" + "x" * length)
    path = socket_path(folder)
    assert is_moved(path) is (excess > 0)
    assert len(os.fsencode(path)) <= LONGEST_PATH
    assert (path.parent == folder) is (excess <= 0)


def test_a_path_of_the_longest_length_works(folder: Path) -> None:
    length = LONGEST_PATH - len(os.fsencode(folder)) - len(SOCKET_NAME) - 2
    longest = folder / ("x" * length)
    assert len(os.fsencode(socket_path(longest))) == LONGEST_PATH
    assert events_of(longest) == []


def test_a_path_that_is_too_long_leads_elsewhere_and_the_log_says_where(deep: Path) -> None:
    path = socket_path(deep)
    assert events_of(deep) == [("control.moved", str(path))]
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_short_folder_that_others_may_enter_is_not_used(deep: Path) -> None:
    path = socket_path(deep)
    path.parent.mkdir()
    path.parent.chmod(0o755)
    assert events_of(deep) == [("control.failed", f"{path.parent} is open to others or not ours")]
    with pytest.raises(ControlFailedError, match="is open to others or not yours"):
        ask_at(path, "echo", {})


def test_the_state_folder_is_made_for_its_owner_alone(folder: Path) -> None:
    assert events_of(folder) == []
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(item.stat().st_mode) for item in folder.iterdir()] == [0o600]


def test_what_a_killed_owner_was_writing_goes_and_what_is_being_written_stays(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    old, new, inside = (f".warmd-{name}.tmp" for name in ("abcd_123", "efgh_456", "ijkl_789"))
    for name in (old, new, ".warmd-settings", "mine"):
        (folder / name).touch()
    (folder / inside).mkdir()
    for name in (old, inside, ".warmd-settings"):
        os.utime(folder / name, (0, 0))
    with control_of(folder, print):
        assert {path.name for path in folder.iterdir()} >= {new, inside, ".warmd-settings", "mine"}
        assert not (folder / old).exists()


def test_a_second_owner_is_told_who_the_first_is(folder: Path) -> None:
    with claimed(folder), pytest.raises(AnotherDaemonError) as caught, claimed(folder):
        pass
    assert caught.value.exit_code == 3
    assert f"another warmd (pid {os.getpid()}) uses the state folder {folder};" in str(caught.value)
    with claimed(folder):
        pass


def test_a_killed_owner_leaves_the_folder_free(folder: Path) -> None:
    script = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from warmd.control.folder import claimed\n"
        f"with claimed(Path({str(folder)!r})):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    with claimed(folder):
        assert (folder / "daemon.lock").read_text() == f"{os.getpid()}\n"


def test_an_owner_that_has_not_said_who_it_is_is_one_all_the_same(folder: Path) -> None:
    with claimed(folder):
        (folder / "daemon.lock").write_text("")
        with pytest.raises(AnotherDaemonError, match=r"^another warmd uses"), claimed(folder):
            pass


def test_a_folder_that_cannot_be_used_is_one_warning_and_no_socket(folder: Path) -> None:
    folder.write_text("")
    reason = f"the state folder {folder} cannot be used: File exists"
    assert events_of(folder) == [("control.failed", reason)]


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_one_warning_and_no_socket(folder: Path) -> None:
    folder.mkdir(mode=0o500)
    reason = f"the state folder {folder} cannot be used: Permission denied"
    assert events_of(folder) == [("control.failed", reason)]


@pytest.mark.parametrize("call", ["ftruncate", "write", "open"])
def test_a_full_disk_is_a_folder_that_cannot_be_used(
    folder: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"warmd.control.folder.os.{call}", fail)
    with pytest.raises(NoSocketError, match="cannot be used: No space left on device"), claimed(folder):
        pass


def test_a_socket_that_cannot_be_made_is_one_warning(folder: Path) -> None:
    (folder / SOCKET_NAME).mkdir(parents=True)
    assert events_of(folder) == [("control.failed", f"{folder / SOCKET_NAME}: Is a directory")]


def test_a_fault_of_the_server_ends_nothing_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: Any) -> Any:
        raise KeyError("secret")

    monkeypatch.setattr("warmd.control.server.ControlServer._listen", fail)
    assert events_of(folder) == [("control.failed", "unexpected KeyError")]
