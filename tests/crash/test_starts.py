"""Starts that fail again and again."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.commands.terminal import outcome, warmd
from warmd.crash.starts import (
    FILE_NAME,
    TOO_MANY,
    WITHIN_SECONDS,
    FailedStart,
    FailedStarts,
    counting,
    note_failed_start,
    read_failed_starts,
)
from warmd.errors import CannotStartError, UsageError, WarmdError
from warmd.events import Event
from warmd.launched import is_under_launchd


def starts(*times: float) -> FailedStarts:
    found = FailedStarts()
    for at in times:
        found = found.after(FailedStart(at, 3, "no such folder"))
    return found


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WARMD_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.mark.parametrize(
    ("times", "gave_up_at"),
    [
        ((0, 1, 2, 3), None),
        ((0, 1, 2, 3, 4), 4),
        ((0, 1, 2, 3, WITHIN_SECONDS), None),
        ((0, 1, 2, 3, WITHIN_SECONDS - 1), WITHIN_SECONDS - 1),
        # A clock that was an hour ahead.
        ((3600, 3601, 3602, 3603, 0), None),
        ((0, 1, 2, 3, 4, 5, 6, 7, 8), 4),
        ((0, 1, 2, 3, 4, 5, 6, 7, 8, 9), 9),
    ],
)
def test_five_within_ten_minutes_are_too_many(times: tuple[float, ...], gave_up_at: float | None) -> None:
    assert starts(*times).gave_up_at == gave_up_at


def test_a_file_holds_the_latest_and_is_private(tmp_path: Path) -> None:
    for at in range(7):
        note_failed_start(tmp_path / "new", FailedStart(float(at), 2, "r"))
    found = read_failed_starts(tmp_path / "new")
    assert [failure.at for failure in found.failed] == [2, 3, 4, 5, 6]
    assert stat.S_IMODE((tmp_path / "new" / FILE_NAME).stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"failed": [{}], "gave_up_at": null}'])
def test_a_broken_file_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    assert read_failed_starts(tmp_path) == FailedStarts()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (None, False),
        ("", False),
        ("0", False),
        ("application.com.apple.Terminal.1152921500311877832.1152921500311877837", False),
        ("dev.warmd", True),
    ],
)
def test_launchd_names_the_service(name: str | None, expected: bool) -> None:
    assert is_under_launchd({} if name is None else {"XPC_SERVICE_NAME": name}) is expected


def run(error: BaseException | int, events: list[Event], told: list[WarmdError]) -> int:
    def start() -> int:
        if isinstance(error, int):
            return error
        raise error

    return counting(start, events.append, told.append)


@pytest.mark.parametrize("error", [UsageError("bad"), CannotStartError("bad"), SystemExit(2)], ids=repr)
def test_the_fifth_ends_with_zero_and_says_so(error: BaseException, state: Path) -> None:
    events: list[Event] = []
    told: list[WarmdError] = []
    code = 3 if isinstance(error, CannotStartError) else 2
    assert [run(error, events, told) for _ in range(TOO_MANY)] == [code] * 4 + [0]
    assert [(event.name, event.fields["failures"]) for event in events] == [("daemon.gave_up", 5)]
    assert told == ([error] * 5 if isinstance(error, WarmdError) else [])
    # Whoever starts it by hand then gets as many tries.
    assert run(error, events, told) == code


def test_a_reason_is_one_line(state: Path) -> None:
    run(UsageError("first\nsecond"), [], [])
    assert [failure.reason for failure in read_failed_starts(state).failed] == ["first; second"]


@pytest.mark.parametrize("error", [0, 1, SystemExit(0), SystemExit(None), WarmdError("x")], ids=repr)
def test_other_ends_are_not_counted(error: BaseException | int, state: Path) -> None:
    for _ in range(9):
        run(error, [], [])
    assert not (state / FILE_NAME).exists()


def test_where_they_cannot_be_counted_the_exit_code_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WARMD_STATE_DIR", str(tmp_path / "file" / "state"))
    events: list[Event] = []
    assert [run(UsageError("bad"), events, []) for _ in range(9)] == [2] * 9
    assert events == []


def serve(tmp_path: Path, *args: str, **environment: str) -> tuple[int, list[str]]:
    code, stdout, stderr = outcome(
        warmd("serve", *args, cwd=tmp_path, WARMD_STATE_DIR=str(tmp_path / "s"), **environment)
    )
    assert stdout == ""
    return code, stderr.splitlines()


SERVICE = {"XPC_SERVICE_NAME": "dev.warmd"}
BAD_CONFIG = {"WARMD_CONFIG": "/no/such/file.toml"}


@pytest.mark.parametrize(
    ("args", "environment", "code"),
    [
        ((), SERVICE, 2),
        (("--give-up", "--log-level", "LOUD"), {}, 2),
        (("--model", "/no/such/model"), {**SERVICE, **BAD_CONFIG}, 2),
        (("--model", "/no/such/model", "--port", "0"), SERVICE, 3),
    ],
    ids=["usage", "bad flag", "bad config", "no model"],
)
def test_launchd_is_told_to_leave_it_alone(
    tmp_path: Path, args: tuple[str, ...], environment: dict[str, str], code: int
) -> None:
    found = [serve(tmp_path, *args, **environment) for _ in range(TOO_MANY)]
    assert [each[0] for each in found] == [code] * 4 + [0]
    last: dict[str, Any] = json.loads(found[-1][1][-1])
    assert (last["event"], last["level"], last["failures"]) == ("daemon.gave_up", "error", 5)


def test_a_sidecar_gives_up_as_well(tmp_path: Path) -> None:
    variables = {**SERVICE, "WARMD_STATE_DIR": str(tmp_path / "s"), "WARMD_WARM_CHUNK_TOKENS": "0"}
    arguments = ("sidecar", "--base-url", "http://127.0.0.1:1")
    found = [outcome(warmd(*arguments, cwd=tmp_path, **variables))[0] for _ in range(TOO_MANY)]
    assert found == [2] * 4 + [0]


def test_a_person_at_a_terminal_always_gets_the_true_exit_code(tmp_path: Path) -> None:
    assert [serve(tmp_path)[0] for _ in range(TOO_MANY + 1)] == [2] * (TOO_MANY + 1)
    assert list(tmp_path.iterdir()) == []
