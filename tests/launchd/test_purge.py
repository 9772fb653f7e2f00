"""What a purge takes for warmd's, and what it leaves."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.disk.made import make_piece, put
from warmd import rates
from warmd.control.folder import claimed
from warmd.crash import starts, suspects
from warmd.crash.starts import FailedStart, note_failed_start
from warmd.crash.suspects import Suspect, Suspects, suspects_json
from warmd.disk.files import Files
from warmd.files.state import Kind, is_cut_short, read_json, write_json
from warmd.launchd.purge import InUseError, NotForPurgingError, Purged, check_folder, purge

SUSPECT = Suspect("k", "m", "auto", ("a",), 5, 1, 7.5)
OURS = {
    "rates.json": json.dumps({"m": {"launchd": 100.0, "terminal": 120}}),
    "quarantine.json": json.dumps(suspects_json(Suspects((), (SUSPECT,)))),
    "daemon.lock": "123\n",
    ".warmd-abcd_123.tmp": "half",
}


def fill(folder: Path, contents: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_text(content)


@pytest.mark.parametrize("name", ["warmd", "Documents"])
def test_all_that_is_warmds_goes_and_a_folder_only_if_it_is_warmds_own(name: str, tmp_path: Path) -> None:
    state = tmp_path / name
    fill(state, OURS)
    note_failed_start(state, FailedStart(1.0, 3, "r"))
    assert purge(state, tmp_path / "kv") == Purged(removed=5)
    assert state.exists() == (name != "warmd")
    assert not (tmp_path / "kv").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rates.json", '{"USD": {"EUR": 0.9}}'),
        ("rates.json", "{}"),
        ("rates.json", '{"USD": {"EUR": 0.'),
        ("rates.json", '{"launchd": {"EUR": 0.'),
        ("rates.json", "[1]"),
        ("starts.json", '{"failed": []}'),
        ("starts.json", '{"failed": [], "gave_up_at": null, "mine": 1}'),
        ("starts.json", '{"failed": [1], "gave_up_at": null}'),
        ("starts.json", '{"failed": ["mine"]}'),
        ("starts.json", '{"mine": ['),
        ("starts.json", '{"failed": ["job 1", "job 2"], '),
        ("starts.json", '{"failed": ["a"]}\n{"failed": []}\n'),
        ("starts.json", '{"failed": [{"at": "noon", "exit_'),
        ("starts.json", '{"failed": [{"at": 1.0, "exit_code": 3, "reason": "r"}], "mine": ['),
        ("starts.json", '{"failed": [{"at": 1.0, "exit_code": 3, "reason": "r"}]}\n{"fai'),
        ("quarantine.json", '{"warming": ["planet earth", "co2'),
        ("quarantine.json", '{"warming": [{"key": "a", "mine": 1'),
        ("quarantine.json", '{"warming": [], "ended": ["planet earth", "co2'),
        ("quarantine.json", json.dumps(suspects_json(Suspects((SUSPECT,)))) + "\nmine"),
        ("rates.json", '{"m": {"launchd": 1}, "mine": [1,2,'),
        ("rates.json", '{"m": {"launchd": 1, "mine": 2'),
        ("rates.json", '{"m": {"terminal": 1}} // my notes'),
        ("rates.json", '{"m": {"terminal": 1.5}}\n{"m": {"terminal": 2}}\n'),
        ("rates.json", '{"m": {"terminal": 1.5} mine'),
        ("quarantine.json", "warming:"),
        ("quarantine.json", '{"warming": [], "ended": [{}]}'),
        ("control.sock", "mine"),
        (".warmd-notes", "mine"),
        (".warmd-settings", "mine"),
        ("other.json", "{}"),
    ],
)
def test_a_file_of_the_same_name_stays(name: str, content: str, tmp_path: Path) -> None:
    fill(tmp_path / "warmd", {name: content})
    assert purge(tmp_path / "warmd", tmp_path / "kv") == Purged(left=(name,))
    assert (tmp_path / "warmd" / name).read_text() == content


@pytest.mark.parametrize("zeros", ["", "\0" * 40])
@pytest.mark.parametrize("kept", [0, 0.5, 0.9])
def test_a_file_of_ours_that_was_cut_short_goes(kept: float, zeros: str, tmp_path: Path) -> None:
    state = tmp_path / "warmd"
    note_failed_start(state, FailedStart(1.0, 3, "r"))
    fill(state, {name: OURS[name] for name in ("rates.json", "quarantine.json")})
    for path in state.iterdir():
        whole = path.read_text()
        path.write_text(whole[: int(kept * len(whole))] + zeros)
    assert purge(state, tmp_path / "kv") == Purged(removed=3)
    assert not state.exists()


ALL = Suspects((SUSPECT, replace(SUSPECT, fingerprint="é")), (replace(SUSPECT, entries=()), SUSPECT))
WRITTEN = [
    ("starts.json", starts.KIND, starts.FailedStarts((FailedStart(1e9, 3, 'a\\"é'), FailedStart(2, 3, "")))),
    ("starts.json", starts.KIND, starts.FailedStarts((FailedStart(1.25, 2, "\U0001f600"),), 1.25)),
    ("quarantine.json", suspects.KIND, suspects_json(ALL)),
    ("quarantine.json", suspects.KIND, suspects_json(Suspects((), (SUSPECT,)))),
    ("rates.json", rates.KIND, {'a\n"é': {"launchd": 100.0, "terminal": 0.05}, "b": {"terminal": 7}}),
    ("rates.json", rates.KIND, {"a": {"terminal": 9.5, "launchd": 12.125}, "b": {"launchd": 7.0}}),
]


@pytest.mark.parametrize(("name", "kind", "value"), WRITTEN)
def test_wherever_a_file_of_ours_breaks_off_it_is_cut_short(
    name: str, kind: Kind, value: Any, tmp_path: Path
) -> None:
    path = tmp_path / name
    write_json(path, asdict(value) if name == "starts.json" else value)
    whole = path.read_bytes().removesuffix(b"\n")
    match = kind.beginning.match(whole)
    assert match is not None
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert is_cut_short(path, kind) == (length == 0 or length >= match.end()), whole[:length]
    path.write_bytes(whole)
    assert not is_cut_short(path, kind)
    assert read_json(path, kind.is_ours, False)


def test_what_is_in_place_of_a_folder_stays_and_is_no_error(tmp_path: Path) -> None:
    state, store = tmp_path / "state", tmp_path / "warmd" / "kv"
    fill(tmp_path, {"state": "mine"})
    fill(tmp_path / "warmd", {"kv": "mine"})
    assert purge(state, store) == purge(state / "below", store / "below") == Purged()
    assert state.read_text() == store.read_text() == "mine"


def test_a_folder_and_a_link_of_the_same_name_stay(tmp_path: Path) -> None:
    state = tmp_path / "warmd"
    fill(tmp_path, {"mine.json": OURS["rates.json"]})
    (state / "starts.json").mkdir(parents=True)
    (state / "rates.json").symlink_to(tmp_path / "mine.json")
    assert purge(state, tmp_path / "kv") == Purged(left=("rates.json", "starts.json"))


def test_a_lock_that_is_not_warmds_is_not_written_to(tmp_path: Path) -> None:
    fill(tmp_path / "s", {"daemon.lock": "mine"})
    with pytest.raises(NotForPurgingError):
        purge(tmp_path / "s", tmp_path / "kv")
    assert (tmp_path / "s" / "daemon.lock").read_text() == "mine"


def test_nothing_goes_while_a_daemon_has_either_folder(tmp_path: Path) -> None:
    state, store = tmp_path / "s", Files(tmp_path / "kv")
    fill(state, OURS)
    put(store, make_piece([1, 2, 3], now=1.0))
    with store.locked(), pytest.raises(InUseError) as raised:
        purge(state, store.folder)
    assert str(raised.value) == f"a daemon runs that keeps its warm state in {store.folder}; stop it first"
    with claimed(state), pytest.raises(InUseError) as raised:
        purge(state, store.folder)
    expected = f"a daemon runs on the state folder {state} (pid {os.getpid()}); stop it first"
    assert str(raised.value) == expected
    assert ({path.name for path in state.iterdir()}, len(store.listed())) == ({*OURS}, 1)
    assert purge(state, store.folder) == Purged(removed=4, files=1)


def test_half_written_state_goes_only_under_a_name_of_ours(tmp_path: Path) -> None:
    store = Files(tmp_path / "kv")
    put(store, make_piece([1, 2, 3], now=1.0))
    ours = f".writing-{store.listed()[0].name}"
    fill(store.folder, {ours: "half", ".writing-a-novel": "mine"})
    assert purge(tmp_path / "s", store.folder) == Purged(files=1)
    assert {path.name for path in store.folder.iterdir()} == {".writing-a-novel"}


def test_the_stores_own_place_leaves_no_trace(tmp_path: Path) -> None:
    store = Files(tmp_path / "warmd" / "kv")
    put(store, make_piece([1, 2, 3], now=1.0))
    assert purge(tmp_path / "s", store.folder) == Purged(files=1)
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_a_folder_elsewhere_stays_and_is_no_error(tmp_path: Path) -> None:
    for name in ("disk", "state"):
        (tmp_path / name).mkdir()
    store, state = tmp_path / "warmd" / "kv", tmp_path / "elsewhere" / "warmd"
    for place, real in ((store, tmp_path / "disk"), (state, tmp_path / "state")):
        place.parent.mkdir()
        place.symlink_to(real)
    put(Files(store), make_piece(range(8)))
    fill(state, OURS)
    assert purge(state, store) == Purged(removed=len(OURS), files=1)
    for place in (store, state):
        assert place.is_symlink()
        assert not list(place.iterdir())


def test_a_lock_of_the_stores_name_that_is_not_empty_stays(tmp_path: Path) -> None:
    fill(tmp_path / "warmd" / "kv", {"writer.lock": "mine"})
    (tmp_path / "warmd" / "kv").chmod(0o700)
    assert purge(tmp_path / "s", tmp_path / "warmd" / "kv") == Purged()
    assert (tmp_path / "warmd" / "kv" / "writer.lock").read_text() == "mine"


def test_home_and_the_systems_folders_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "Documents").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "link").symlink_to(home)
    for folder in (
        home,
        tmp_path / "link",
        tmp_path,
        Path("/"),
        Path("/opt"),
        Path("/tmp"),
        Path("/usr/bin"),
    ):
        with pytest.raises(NotForPurgingError):
            check_folder(folder)
    for folder in (home / "Documents", home / ".local/state/warmd", Path("/usr/local/var/warmd")):
        check_folder(folder)
