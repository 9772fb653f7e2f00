"""Each check of the doctor on its own."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.disk.made import make_piece, put
from tests.launchd.test_agent import AGENT, FILE
from warmd.control.errors import ControlFailedError
from warmd.crash.starts import FailedStart, note_failed_start
from warmd.crash.suspects import Suspect, Suspects, happened, way_out
from warmd.disk.files import Files
from warmd.doctor import daemon, engine, files, service
from warmd.doctor.commands import RESTART, restart_command, start_command
from warmd.doctor.daemon import Starting
from warmd.doctor.engine import Engine
from warmd.doctor.finding import Finding
from warmd.engines.model_folder import ModelError, check_model_folder, model_folder
from warmd.launchd.agent import build_plist
from warmd.launchd.launchctl import JobState
from warmd.launchd.ready import Address, Readiness
from warmd.memory.size import format_size
from warmd.status import DocumentStatus, EntryStatus, Statistics, status_json

GIGABYTE = 10**9


def brief(finding: Finding | None) -> tuple[str, str] | None:
    """State and what it says."""
    return None if finding is None else (finding.state, finding.what)


# --- the engine -----------------------------------------------------------------------------------


def test_the_real_engine_is_probed_in_a_process_of_its_own() -> None:
    found = engine.probe_engine()
    assert (found.error, found.missing) == (None, ())
    assert engine.check_packages(found).state == "ok"


@pytest.mark.parametrize(
    ("code", "output", "errors", "expected"),
    [
        (0, '{"error": "No module named \\n mlx"}\n', "", Engine("No module named mlx")),
        (
            -6,
            "",
            "abort\nlibc++abi: terminating\n",
            Engine("importing mlx-lm ended with -6: libc++abi: terminating"),
        ),
        (1, "", "", Engine("importing mlx-lm ended with 1: no message")),
        (0, "[]", "", Engine("importing mlx-lm ended with 0: no message")),
        (
            0,
            'noise\n{"metal": true, "device": "M4", "recommended_bytes": 5, "missing": ["a.b"]}',
            "",
            Engine(None, True, "M4", 5, ("a.b",)),
        ),
    ],
)
def test_what_the_probe_says_is_understood(code: int, output: str, errors: str, expected: Engine) -> None:
    assert engine.parse_probe(code, output, errors) == expected


def test_an_engine_that_is_not_there_or_does_not_fit_is_a_problem() -> None:
    assert engine.check_packages(Engine("no")).state == "problem"
    finding = engine.check_packages(Engine(missing=("mlx_lm.server.run",)))
    assert (finding.state, finding.what.endswith(": missing mlx_lm.server.run")) == ("problem", True)


def test_an_older_engine_is_right_beside_vllm_mlx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "find_spec", lambda name: object())
    finding = engine.check_packages(Engine(missing=("mlx_lm.server.run",)))
    assert (finding.state, "--engine vllm-mlx" in finding.what) == ("ok", True)


def test_metal() -> None:
    assert brief(engine.check_metal(Engine(None, True, "Apple M4", 12 * GIGABYTE))) == (
        "ok",
        "Apple M4, 12 GB recommended as working set",
    )
    assert engine.check_metal(Engine("no")).state == "unknown"
    assert engine.check_metal(Engine()).state == ("problem" if engine.is_mac() else "unknown")


@pytest.mark.parametrize(
    ("recommended", "wired", "model", "expected"),
    [
        (None, None, 5, ("unknown", "no such setting here")),
        (12 * GIGABYTE, 0, 10 * GIGABYTE, ("ok", "the system's default")),
        (12 * GIGABYTE, 14000, None, ("ok", "14,000 MiB (iogpu.wired_limit_mb)")),
        (
            12 * GIGABYTE,
            0,
            16 * GIGABYTE,
            ("warning", "the system's default: the model's 16 GB are more than 12 GB"),
        ),
    ],
)
def test_the_wired_limit(
    recommended: int | None, wired: int | None, model: int | None, expected: tuple[str, str]
) -> None:
    found = engine.check_wired(Engine(None, True, "M4", recommended), wired, model)
    assert brief(found) == expected
    if found.state == "warning":
        assert (found.fix or "").endswith("sudo sysctl iogpu.wired_limit_mb=19073")


# --- files ----------------------------------------------------------------------------------------


def test_a_model_is_found_where_it_would_be_loaded_from(tmp_path: Path) -> None:
    snapshot = tmp_path / "hub/models--org--name/snapshots/abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").touch()
    assert model_folder(str(tmp_path), {}, tmp_path) == tmp_path
    assert model_folder("org/name", {"HF_HOME": str(tmp_path)}, tmp_path) == snapshot
    assert model_folder("org/name", {"HF_HUB_CACHE": f"{tmp_path}/hub"}, tmp_path) == snapshot
    assert model_folder("org/other", {"HF_HOME": str(tmp_path)}, tmp_path) is None
    assert files.check_model("org/name", snapshot).state == "ok"
    assert files.check_model("org/other", None).fix == "`hf download org/other`"
    assert files.check_model("/no/where", None).state == "problem"
    assert files.check_model(None, None).state == "unknown"


def test_the_size_of_a_model(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"12345")
    (tmp_path / "b.safetensors").write_bytes(b"1")
    assert engine.model_size(tmp_path) == 6
    assert engine.model_size(None) is None


def test_the_prompts_file(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    finding, involved = files.check_prompts(path, 10**6)
    assert (finding.state, involved) == ("warning", (path,))
    path.write_text('[[{"role": "system", "content_file": "x"}]]')
    finding, _ = files.check_prompts(path, 10**6)
    assert finding.state == "problem"
    assert finding.what.startswith(f"{path}:1: ")
    assert finding.fix == f"`warmd check {path}` shows all of it"
    (tmp_path / "s.md").write_text("Be brief.")
    path.write_text('[{"messages": [{"role": "system", "content_file": "s.md"}]}]')
    finding, involved = files.check_prompts(path, 10**6)
    assert (brief(finding), involved) == (("ok", f"{path}: 1 entry"), (path, tmp_path / "s.md"))


def test_warm_state_on_disk(tmp_path: Path) -> None:
    folder = tmp_path / "kv"
    assert brief(files.check_store(folder, None, is_enabled=True)) == ("ok", f"0 B in 0 files in {folder}")
    put(Files(folder), make_piece([1, 2, 3], size=50_000, now=1.0))
    size = format_size(sum(file.nbytes for file in Files(folder).listed()))
    what = f"{size} in 1 file in {folder}; `warmd store clear` or `warmd uninstall --purge` removes that"
    assert brief(files.check_store(folder, None, is_enabled=True)) == ("ok", what)
    assert brief(files.check_store(folder, "full", is_enabled=True)) == ("warning", f"{what}; not used: full")
    off = f"{what}; no more is written: [store] enabled is false"
    assert brief(files.check_store(folder, None, is_enabled=False)) == ("ok", off)


def test_folders(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    assert brief(files.check_folder("x", folder)) == ("ok", f"{folder} will be made")
    folder.mkdir(mode=0o700)
    assert brief(files.check_folder("x", folder)) == ("ok", str(folder))
    folder.chmod(0o777)
    assert files.check_folder("x", folder) == Finding(
        "x", "warning", f"{folder}: others may write there", f"chmod 700 {folder}"
    )
    (tmp_path / "g").touch()
    assert brief(files.check_folder("x", tmp_path / "g")) == ("problem", f"{tmp_path}/g is no folder")
    assert brief(files.check_folder("x", tmp_path / "g/h")) == (
        "problem",
        f"{tmp_path}/g/h: Not a directory",
    )


def test_commands_can_be_pasted_whatever_is_in_a_name(tmp_path: Path) -> None:
    folder = tmp_path / "Application Support" / "f"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert files.check_folder("x", folder).fix == f"chmod 700 '{folder}'"
    assert files.check_model("a b/c", None).fix == "install again: `warmd install --model M`"
    prompts = folder / "p.json"
    prompts.write_text("[1]")
    assert files.check_prompts(prompts, 10**6)[0].fix == f"`warmd check '{prompts}'` shows all of it"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give folders away")
def test_what_belongs_to_another_user_is_not_to_be_changed(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, -1)
    finding = files.check_folder("x", tmp_path)
    os.chown(tmp_path, 0, -1)
    assert brief(finding) == ("problem", f"{tmp_path} belongs to another user")
    assert (finding.fix or "").startswith("take another folder")


@pytest.mark.parametrize(
    ("has_file", "is_readable", "is_loaded", "expected"),
    [
        (True, True, True, "restart"),
        (True, True, False, "install"),
        (True, False, False, "install --model M"),
        (False, False, True, "restart"),
        (False, False, False, "serve --model M"),
    ],
)
def test_what_starts_a_daemon(has_file: bool, is_readable: bool, is_loaded: bool, expected: str) -> None:
    start = start_command(has_file=has_file, is_readable=is_readable, is_loaded=is_loaded)
    assert start == f"`warmd {expected}`"
    assert daemon.check_daemon(None, None, start).fix == f"start it: `warmd {expected}`"


def test_only_what_launchd_runs_is_restarted_by_launchd() -> None:
    assert restart_command(7, 7) == restart_command(None, 7) == RESTART
    for pids in ((7, None), (7, 8), (None, None)):
        other = restart_command(*pids)
        assert "warmd restart" not in other
        (found,) = daemon.check_version(make_status(), "0.2.0", other)
        assert found.fix == other
        hung = service.check_port(
            Address(), None, is_taken=True, is_installed=False, is_hung=True, again=other
        )
        assert (hung.fix or "").startswith("end its process, and start it again as it was started")


def test_a_store_that_cannot_be_used_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    expected = ("problem", f"{tmp_path}/file is no folder")
    assert brief(files.check_store(tmp_path / "file", None, is_enabled=True)) == expected
    assert files.check_store(tmp_path / "file" / "kv", None, is_enabled=True).state == "problem"


def test_an_adapter(tmp_path: Path) -> None:
    assert list(files.check_adapter_folder(None)) == []
    assert [brief(found) for found in files.check_adapter_folder(str(tmp_path))] == [("ok", str(tmp_path))]
    assert [found.state for found in files.check_adapter_folder("/no/where")] == ["problem"]


def test_a_disk_is_told_once(tmp_path: Path) -> None:
    found = list(files.check_disk((tmp_path, tmp_path / "a", tmp_path / "b" / "c")))
    assert [finding.name for finding in found] == ["disk"]


def test_a_prompts_file_that_cannot_be_looked_at_is_not_taken_for_missing(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    finding, involved = files.check_prompts(tmp_path / "loop" / "p.json", 10**6)
    assert (finding.state, involved) == ("problem", (tmp_path / "loop" / "p.json",))
    assert finding.what.startswith(f"{tmp_path}/loop/p.json: Too many levels of symbolic links")


def test_a_folder_that_may_not_be_entered_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o600)
    if os.access(closed, os.X_OK):
        pytest.skip("the superuser may enter every folder")
    expected = Finding(
        "x",
        "problem",
        f"{closed}/f cannot be reached: {closed} may not be entered",
        f"chmod u+x {closed}",
    )
    try:
        assert files.check_folder("x", closed / "f") == expected
        assert replace(files.check_prompts(closed / "f", 1)[0], name="x") == expected
        assert [found.name for found in files.check_disk((closed / "f",))] == ["disk"]
        with pytest.raises(ModelError):
            check_model_folder(str(closed / "f"))
    finally:
        closed.chmod(0o700)


def test_protected_folders_are_named_once(tmp_path: Path) -> None:
    path = tmp_path / "Desktop" / "p.json"
    found = list(files.check_protected([path, path, tmp_path / "x"], tmp_path))
    expected = f"{path} is in the Desktop folder, which macOS keeps from services"
    assert [brief(finding) for finding in found] == [("warning", expected)]
    assert [finding.state for finding in files.check_protected([], tmp_path)] == ["ok"]


# --- the service ----------------------------------------------------------------------------------


def test_an_interpreter_that_is_gone_is_a_problem(tmp_path: Path) -> None:
    plist = build_plist(AGENT)
    found = list(service.check_plist(plist, FILE, AGENT.home, AGENT.logs))
    assert found[0] == Finding(
        "interpreter",
        "problem",
        "the interpreter is gone: /Users/me/venv/bin/python",
        "`warmd install` writes the file anew, for this one",
    )


def test_another_name_of_this_interpreter_is_no_difference(tmp_path: Path) -> None:
    python = next(path for path in Path(sys.executable).parent.glob("python*") if path.name != "python")
    plist = build_plist(replace(AGENT, python=python))
    found = list(service.check_plist(plist, FILE, AGENT.home, AGENT.logs))
    assert found == [Finding("interpreter", "ok", str(python))]


def test_a_file_that_breaks_a_rule_or_is_older_is_told(tmp_path: Path) -> None:
    plist = {**build_plist(AGENT), "Umask": 0o022}
    found = list(service.check_plist(plist, FILE, AGENT.home, AGENT.logs))
    assert [finding.state for finding in found] == ["problem", "problem", "warning"]
    assert found[1].what == f"{FILE}: Umask: expected 63, found 18"
    assert found[2].what.startswith(f"{FILE} is not what would be written today: ")
    assert "Umask" in found[2].what


def test_a_plist_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "x.plist"
    assert brief(service.look_at_plist(path)[1]) == ("ok", "not installed")
    path.write_bytes(b"x")
    assert service.look_at_plist(path)[1].state == "problem"


@pytest.mark.parametrize(
    ("job", "is_installed", "expected"),
    [
        (None, False, ("ok", "not installed; `warmd install --model M` makes a Mac service")),
        (None, True, ("problem", "not loaded into launchd")),
        (JobState(pid=7, runs=1), True, ("ok", "runs in gui/501 with pid 7")),
        (
            JobState(pid=7, runs=3, last_signal="Killed: 9"),
            True,
            ("ok", "runs in gui/501 with pid 7, started 3 times; last signal Killed: 9"),
        ),
        (
            JobState(runs=2, last_exit=3),
            True,
            (
                "problem",
                "loaded into gui/501, but does not run; last exit code 3 (it cannot start): no such model",
            ),
        ),
        (JobState(pid=7), False, ("warning", "loaded into gui/501, but its file is gone")),
    ],
)
def test_how_the_job_is(
    job: JobState | None, is_installed: bool, expected: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "warmd.jsonl").write_text('{"event": "daemon.stopped", "reason": "no such model"}\n')
    found = service.check_job(
        None if job is None else ("gui/501", job), is_installed, tmp_path / "warmd.jsonl", tmp_path
    )
    assert brief(found) == expected


@pytest.mark.parametrize(
    ("readiness", "is_taken", "pid", "expected"),
    [
        (Readiness(True), False, 7, ("ok", "http://127.0.0.1:8080 takes requests")),
        (
            Readiness(True),
            False,
            None,
            ("problem", "http://127.0.0.1:8080 is another warmd's, pid unknown"),
        ),
        (Readiness(True, None, 7), False, 7, ("ok", "http://127.0.0.1:8080 takes requests")),
        (Readiness(True, None, 8), False, 7, ("problem", "http://127.0.0.1:8080 is another warmd's, pid 8")),
        (
            Readiness(True, None, 8),
            False,
            None,
            ("problem", "http://127.0.0.1:8080 is another warmd's, pid 8"),
        ),
        (
            None,
            True,
            7,
            (
                "problem",
                "http://127.0.0.1:8080 gives no answer: the daemon, pid 7, hangs, "
                "or another program has the port",
            ),
        ),
        (
            Readiness(False, "the model is being loaded"),
            False,
            7,
            ("warning", "http://127.0.0.1:8080: the model is being loaded"),
        ),
        (None, True, None, ("problem", "http://127.0.0.1:8080 is another program's")),
        (None, False, 7, ("unknown", "nobody at http://127.0.0.1:8080; the daemon may have another port")),
        (None, False, None, ("ok", "http://127.0.0.1:8080 is free")),
    ],
)
def test_the_port(
    readiness: Readiness | None, is_taken: bool, pid: int | None, expected: tuple[str, str]
) -> None:
    found = service.check_port(Address(), readiness, is_taken=is_taken, is_installed=True, daemon_pid=pid)
    assert brief(found) == expected


def test_a_port_that_no_service_is_to_have_is_no_problem() -> None:
    found = service.check_port(Address(), None, is_taken=True, is_installed=False, daemon_pid=None)
    assert brief(found) == ("warning", "http://127.0.0.1:8080 is another program's")


def test_a_port_that_another_warmd_has_is_not_ours_although_no_daemon_runs() -> None:
    theirs = Readiness(True, None, 8)
    found = service.check_port(Address(), theirs, is_taken=False, is_installed=False)
    assert brief(found) == ("warning", "http://127.0.0.1:8080 is another warmd's, pid 8")
    assert found.fix == "stop it (`lsof -i :8080` names it), or take another port (`--port N`)"
    # Its commands are not answered, which is told elsewhere; its server is.
    hung = service.check_port(Address(), theirs, is_taken=False, is_installed=False, is_hung=True)
    assert brief(hung) == ("ok", "http://127.0.0.1:8080 takes requests")


def test_a_process_that_hangs_is_not_taken_for_another_program() -> None:
    hung = service.check_port(Address(), None, is_taken=True, is_installed=True, job_pid=7)
    assert "the daemon, pid 7, hangs" in hung.what
    assert (hung.fix or "").startswith("`warmd restart`")
    hung = service.check_port(Address(), None, is_taken=True, is_installed=False, is_hung=True)
    assert "the daemon hangs" in hung.what
    hung = daemon.check_daemon(None, ControlFailedError("no answer within 10 s"), RESTART, is_hung=True)
    assert (hung.state, (hung.fix or "").startswith("wait; then `warmd restart`")) == ("problem", True)


def test_a_plist_that_runs_another_program_is_written_anew() -> None:
    plist = {**build_plist(AGENT), "ProgramArguments": ["/bin/sh", "-c", "x"]}
    assert list(service.check_plist(plist, FILE, AGENT.home, AGENT.logs)) == [
        Finding(
            "LaunchAgent",
            "problem",
            f"{FILE} does not run `warmd serve --model M`",
            "`warmd install --model M` writes it anew",
        )
    ]


def test_starts_that_failed(tmp_path: Path) -> None:
    assert list(service.check_starts(tmp_path, "`warmd restart`")) == []
    for number in range(5):
        note_failed_start(tmp_path, FailedStart(1000.0 + number, 3, "no such model"))
        if number == 0:
            expected = ("warning", "1 start failed of late: no such model")
            assert [brief(found) for found in service.check_starts(tmp_path, "`warmd restart`")] == [expected]
    expected = ("problem", "5 starts failed of late: no such model; launchd tries no more")
    assert [brief(found) for found in service.check_starts(tmp_path, "`warmd restart`")] == [expected]
    # Somebody has had it tried again since, and so launchd goes on.
    note_failed_start(tmp_path, FailedStart(1010.0, 3, "no such model"))
    expected = ("warning", "5 starts failed of late: no such model")
    assert [brief(found) for found in service.check_starts(tmp_path, "`warmd restart`")] == [expected]


# --- the daemon -----------------------------------------------------------------------------------


def make_status(*entries: EntryStatus) -> dict[str, Any]:
    document = DocumentStatus(Path("/p.json"), accepted=1)
    return status_json(Statistics("0.1.0", 7, 5.0, "m", document, entries))


def test_a_daemon_and_its_version() -> None:
    status = make_status(EntryStatus("a", "warm"), EntryStatus("b", "deferred"))
    assert brief(daemon.check_daemon(status, None)) == ("ok", "pid 7, version 0.1.0: 1 warm, 1 deferred")
    assert brief(daemon.check_daemon(None, None)) == ("warning", "no daemon is running")
    assert list(daemon.check_version(status, "0.1.0")) == []
    assert [brief(found) for found in daemon.check_version(status, "0.2.0")] == [
        ("warning", "the daemon is of version 0.1.0, this command of 0.2.0")
    ]


def test_the_model_of_a_running_daemon() -> None:
    status = make_status()
    away = {**status, "model": None, "server": {"url": "http://s:1", "problem": "gone"}}
    there = {**status, "server": {"url": "http://s:1", "problem": None}}
    assert brief(daemon.check_loaded(status, None)) == ("ok", "m")
    assert brief(daemon.check_loaded(status, Path("/m"))) == ("ok", "/m")
    assert brief(daemon.check_loaded({**status, "model": None}, None)) == (
        "unknown",
        "the daemon has none loaded yet",
    )
    assert brief(daemon.check_loaded(away, None)) == ("unknown", "the server has none now")
    assert brief(daemon.check_loaded(there, None)) == ("ok", "m at http://s:1")
    assert brief(daemon.check_server(there["server"])) == ("ok", "http://s:1 answers")
    assert brief(daemon.check_server(away["server"])) == ("problem", "http://s:1: gone")


def test_suspects_of_another_model_or_of_one_end_are_not_told() -> None:
    once = Suspect("k", "m", "auto", ("a",), 5, ends=1)
    twice = replace(once, key="l", ends=2)
    unknown = Starting(None)
    assert list(daemon.check_suspects(Suspects((), (once,)), unknown)) == []
    for other in (Starting("other", None, "auto"), Starting("m", None, "9"), Starting("m", "f", "auto")):
        assert list(daemon.check_suspects(Suspects((), (twice,)), other)) == []
    same, files = Starting("m", "f", "auto"), Suspects((), (once, replace(twice, fingerprint="f")))
    assert [found.name for found in daemon.check_suspects(files, same)] == ["quarantine"]
    (found,) = daemon.check_suspects(Suspects((), (twice,)), Starting("m", None, "auto"))
    assert found.what.endswith("; unless it or the model's files were changed since, it is not warmed")
    (found,) = daemon.check_suspects(Suspects((), (replace(twice, entries=("a b", "c")),)), unknown)
    assert "unless it, the model or [memory] limit was changed since" in found.what
    assert found.what.startswith("a b, c: the process ended abruptly 2 times while warming it (model m); ")
    assert found.fix == (
        "edit it, change the model or [memory] limit, or run `warmd rewarm 'a b' c` once the daemon runs"
    )


def test_entries_that_are_kept_away_or_missed_are_told() -> None:
    status = make_status(
        EntryStatus("a", "warm", near_misses=3),
        EntryStatus("b", "quarantined", reason=f"{happened(2)}: {way_out()}"),
        EntryStatus("c", "failed", reason="no template"),
        EntryStatus("d", "warm"),
        EntryStatus("e", "warm", near_misses=1),
    )
    assert list(daemon.check_entries(status)) == [
        Finding(
            "near misses",
            "warning",
            "a: 3 requests began like it and then parted from it",
            "`warmd explain a` shows where and why",
        ),
        Finding(
            "quarantine",
            "problem",
            "b: the process ended abruptly 2 times while warming it",
            "edit it, change the model or [memory] limit, or run `warmd rewarm b`",
        ),
        Finding("entries", "warning", "c is failed: no template", "see `warmd status`"),
        Finding(
            "near misses",
            "warning",
            "e: 1 request began like it and then parted from it",
            "`warmd explain e` shows where and why",
        ),
    ]


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ({}, [("unknown", "not measured both under launchd and in a terminal")]),
        ({"m": {"launchd": 9.0}}, [("unknown", "not measured both under launchd and in a terminal")]),
        (
            {"m": {"launchd": 800.0, "terminal": 1000.0}},
            [("ok", "m: 800 tokens/s under launchd, 1,000 in a terminal")],
        ),
        (
            {"m": {"launchd": 110.0, "terminal": 1000.0}},
            [("warning", "m: 110 tokens/s under launchd, 1,000 in a terminal")],
        ),
    ],
)
def test_throttling_shows_in_the_rates(
    rates: dict[str, Any], expected: list[tuple[str, str]], tmp_path: Path
) -> None:
    (tmp_path / "rates.json").write_text(json.dumps(rates))
    assert [brief(finding) for finding in daemon.check_rates(tmp_path)] == expected
