"""Removing the service and what it has left, with a launchctl that really starts processes."""

from __future__ import annotations

from pathlib import Path

from tests.commands.terminal import warmd
from tests.disk.made import make_piece, put
from tests.launchd.mac import Mac
from warmd.disk.files import Files
from warmd.memory.size import format_size

RATES = '{"m": {"launchd": 100.0}}'


def test_a_purge_goes_by_the_variables_of_the_service(mac: Mac, tmp_path: Path) -> None:
    mac.install(WARMD_STATE_DIR=str(tmp_path / "mine"), WARMD_STORE_PATH=str(tmp_path / "kv"))
    for folder in (tmp_path / "mine", mac.home / "s"):
        folder.mkdir(exist_ok=True)
        (folder / "rates.json").write_text(RATES)
    put(Files(tmp_path / "kv"), make_piece([1, 2, 3], now=1.0))
    done = mac.run("uninstall", "--purge")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"removed: what was in {tmp_path}/mine" in done.stdout
    assert f"removed: 1 file of warm state in {tmp_path}/kv\n" in done.stdout
    assert (mac.home / "s" / "rates.json").exists()


def test_a_purge_that_fails_leaves_the_file_that_says_where_to_try_again(mac: Mac, tmp_path: Path) -> None:
    state, ours = tmp_path / "mine", mac.home / "s"
    mac.install(WARMD_STATE_DIR=str(state), WARMD_STORE_PATH=str(tmp_path / "kv"))
    for folder in (state, ours):
        folder.mkdir(exist_ok=True)
        (folder / "rates.json").write_text(RATES)
    put(Files(tmp_path / "kv"), make_piece([1, 2, 3], now=1.0))
    with Files(tmp_path / "kv").locked():
        done = mac.run("uninstall", "--purge")
    assert (done.returncode, done.stdout, mac.plist.exists()) == (3, "", True)
    assert done.stderr.splitlines() == [
        f"note: the service is stopped; {mac.plist} stays, to try this again",
        f"warmd: a daemon runs that keeps its warm state in {tmp_path}/kv; stop it first",
    ]
    assert len(Files(tmp_path / "kv").listed()) == 1
    assert (state / "rates.json").exists()
    assert mac.run("uninstall", "--purge").returncode == 0
    assert not mac.plist.exists()
    assert (list(state.iterdir()), Files(tmp_path / "kv").listed()) == ([], [])
    assert (ours / "rates.json").exists()


def test_a_home_folder_is_never_purged(mac: Mac) -> None:
    mac.install(WARMD_STATE_DIR=str(mac.home))
    calls = mac.calls
    done = mac.run("uninstall", "--purge")
    assert (done.returncode, mac.plist.exists(), mac.calls) == (2, True, calls)
    assert done.stderr == (
        f"warmd: --purge: {mac.home} is the home folder: nothing is removed; `warmd uninstall` goes without\n"
    )


def test_what_cannot_be_found_is_not_purged_and_nothing_is_removed(mac: Mac) -> None:
    mac.install()
    (mac.home / ".config/warmd/warmd.toml").write_text("[state]\ndir = 3\n")
    done = mac.run("uninstall", "--purge")
    assert (done.returncode, mac.plist.exists()) == (2, True)
    assert mac.run("uninstall").returncode == 0


def test_where_there_was_never_a_service_files_can_be_purged_all_the_same(tmp_path: Path) -> None:
    state = tmp_path / "warmd"
    state.mkdir()
    for name in ("daemon.lock", ".warmd-abcd_123.tmp"):
        (state / name).touch()
    put(Files(tmp_path / "kv"), make_piece([1, 2, 3], now=1.0))
    places = {"WARMD_STATE_DIR": str(state), "WARMD_STORE_PATH": str(tmp_path / "kv"), "PATH": str(tmp_path)}
    done = warmd("uninstall", "--purge", cwd=tmp_path, **places)
    assert (done.returncode, done.stderr) == (0, "there is no launchctl here, and so no service to stop\n")
    assert done.stdout.splitlines() == [
        f"removed: what was in {state}",
        f"removed: 1 file of warm state in {tmp_path}/kv",
        "the service is not installed",
    ]
    assert (state.exists(), Files(tmp_path / "kv").listed()) == (False, [])


def test_a_file_in_place_of_the_state_folder_stays_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "warmd").write_text("mine")
    places = {"WARMD_STATE_DIR": str(tmp_path / "warmd"), "WARMD_STORE_PATH": "~/kv", "PATH": str(tmp_path)}
    done = warmd("uninstall", "--purge", cwd=tmp_path, **places)
    assert (done.returncode, (tmp_path / "warmd").read_text()) == (0, "mine")
    assert done.stdout.splitlines() == [
        f"left: {tmp_path}/warmd, which is no folder and so not warmd's",
        "the service is not installed",
    ]


def test_what_stays_is_named_with_what_removes_it(mac: Mac) -> None:
    folder = mac.home / ".cache/warmd/kv"
    put(Files(folder), make_piece([1, 2, 3], size=50_000, now=1.0))
    size = format_size(Files(folder).listed()[0].nbytes)
    config = mac.home / ".config/warmd/warmd.toml"
    for path in (config, mac.home / "s" / "rates.json"):
        path.parent.mkdir(parents=True)
        path.touch()
    assert mac.run("uninstall").stdout.splitlines() == [
        "the service is not installed",
        f"left: {config}",
        f"left, --purge removes it: what warmd keeps in {mac.home}/s",
        f"left, --purge removes it: {size} in 1 file of warm state in {folder}",
    ]
    # What was never there is not named.
    empty = mac.run("uninstall", "--purge", WARMD_STATE_DIR=str(mac.home / "t"), WARMD_STORE_PATH="k")
    assert empty.stdout.splitlines() == ["the service is not installed", f"left: {config}"]
    # Whatever is wrong with the settings, the service can be removed.
    assert mac.run("uninstall", WARMD_WARM_CHUNK="1").returncode == 0


def test_purging_leaves_what_is_not_ours(mac: Mac) -> None:
    folder = mac.home / "s"
    folder.mkdir()
    for name in ("daemon.lock", "diary.txt"):
        (folder / name).touch()
    (folder / "rates.json").write_text(RATES)
    store = mac.home / ".cache/warmd/kv"
    store.mkdir(parents=True, mode=0o700)
    (store / "diary.txt").touch()
    done = mac.run("uninstall", "--purge")
    assert (done.returncode, [path.name for path in folder.iterdir()]) == (0, ["diary.txt"])
    assert done.stdout.splitlines() == [
        f"removed: what was in {folder}",
        f"left: in {folder} what may not be warmd's: diary.txt",
        "the service is not installed",
    ]
    assert (store / "diary.txt").exists()


def test_a_file_that_cannot_be_removed_leaves_word_that_the_service_is_stopped(mac: Mac) -> None:
    assert mac.install().returncode == 0
    mac.plist.unlink()
    mac.plist.mkdir()
    done = mac.run("uninstall")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "note: the service is stopped, until the next login"
