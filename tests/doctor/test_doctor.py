"""`warmd doctor` as a whole, as its user sees it."""

from __future__ import annotations

import json
import plistlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands.terminal import warmd
from tests.launchd.mac import Mac
from tests.serving.process import beside, free_port, serving, write
from warmd import __version__
from warmd.commands.doctor import report_lines
from warmd.doctor.examine import _guarded, examine
from warmd.doctor.finding import Finding
from warmd.doctor.scene import sources
from warmd.launchd.launchctl import Answer


def findings(done: Any) -> dict[str, list[dict[str, Any]]]:
    """By name."""
    found: dict[str, list[dict[str, Any]]] = {}
    for finding in json.loads(done.stdout)["findings"]:
        found.setdefault(finding["name"], []).append(finding)
    return found


def test_on_a_machine_with_nothing_there_is_no_problem(tmp_path: Path) -> None:
    done = warmd("doctor", "--json", cwd=tmp_path, WARMD_STATE_DIR=str(tmp_path / "s"), PATH=str(tmp_path))
    assert (done.returncode, done.stderr, json.loads(done.stdout)["ok"]) == (0, "", True)
    assert list(findings(done)) == [
        *("Python", "engine", "Metal", "wired limit", "settings", "looked at", "model", "prompts"),
        *("state folder", "log folder", "warm state", "privacy", "disk", "LaunchAgent", "service"),
        *("port", "daemon", "prefill rate"),
    ]
    assert list(tmp_path.iterdir()) == []


def short(done: Any, *names: str) -> dict[str, tuple[str, str]]:
    """State and text of some findings of which there is one each."""
    found = findings(done)
    assert all(len(found[name]) == 1 for name in names)
    return {name: (found[name][0]["state"], found[name][0]["what"]) for name in names}


def test_beside_a_running_server_its_own_model_file_and_port_are_looked_at(
    tmp_path: Path, models: dict[str, Path]
) -> None:
    write(tmp_path / "mine.json", [[{"role": "system", "content": "Be brief."}]])
    store = {"WARMD_STORE_ENABLED": "true", "WARMD_STORE_PATH": str(tmp_path / "kv")}
    with serving(models["llama"], tmp_path / "mine.json", environment=store) as server:
        server.wait_for("entry.warmed")
        done = warmd("doctor", "--json", cwd=tmp_path, WARMD_STATE_DIR=str(server.state_folder), **store)
        pid, port = server.process.pid, server.port
    assert (done.returncode, done.stderr) == (0, "")
    found = short(done, "looked at", "model", "prompts", "port", "daemon", "warm state")
    assert f"in {tmp_path}/kv" in found.pop("warm state")[1]
    assert found == {
        "looked at": ("ok", f"model, prompts file and port of the running daemon, pid {pid}"),
        "model": ("ok", str(models["llama"])),
        "prompts": ("ok", f"{tmp_path}/mine.json: 1 entry"),
        "port": ("ok", f"http://127.0.0.1:{port} takes requests"),
        "daemon": ("ok", f"pid {pid}, version {__version__}: 1 warm"),
    }


def test_beside_a_sidecar_whose_server_is_away_it_says_where_and_why(tmp_path: Path) -> None:
    write(tmp_path / "mine.json", [[{"role": "system", "content": "Be brief."}]])
    url = f"http://127.0.0.1:{free_port()}"
    with beside(f"{url}/v1", tmp_path / "mine.json") as sidecar:
        sidecar.wait_for("engine.unreachable")
        environment = {"WARMD_STATE_DIR": str(sidecar.state_folder)}
        done = warmd("doctor", "--json", cwd=tmp_path, **environment)
        status = warmd("status", cwd=tmp_path, **environment)
    assert done.returncode == 1
    assert short(done, "model", "prompts", "server") == {
        "model": ("unknown", "the server has none now"),
        "prompts": ("ok", f"{tmp_path}/mine.json: 1 entry"),
        "server": ("problem", f"{url}: no connection can be made with the server"),
    }
    assert "port" not in findings(done)
    assert status.stdout.splitlines()[0].startswith(f"no model at {url} (warmd ")
    assert status.stdout.splitlines()[1] == (
        "nothing can be warmed there: no connection can be made with the server"
    )


def test_without_a_daemon_what_ended_it_twice_is_told_all_the_same(tmp_path: Path) -> None:
    once = {
        "key": "k",
        "model": "m",
        "limit": "auto",
        "entries": ["coder"],
        "tokens": 5,
        "ends": 1,
        "at": 1.0,
        "fingerprint": "",
    }
    # One end is counted, and a mark that is left over is another.
    (tmp_path / "quarantine.json").write_text(json.dumps({"warming": [once], "ended": [once]}))
    done = warmd("doctor", "--json", cwd=tmp_path, WARMD_STATE_DIR=str(tmp_path))
    assert done.returncode == 1
    (found,) = findings(done)["quarantine"]
    assert (found["state"], found["what"]) == (
        "problem",
        "coder: the process ended abruptly 2 times while warming it (model m); "
        "unless it, the model or [memory] limit was changed since, it is not warmed",
    )


def test_what_is_wrong_comes_with_what_to_do(tmp_path: Path) -> None:
    mac = Mac(tmp_path)
    prompts = tmp_path / "Documents" / "p.json"
    prompts.parent.mkdir()
    prompts.write_text("[[]]")
    (tmp_path / "w.toml").write_text("[warm]\nchunk = 1\n")
    old = {
        "Label": "dev.warmd",
        "ProgramArguments": [
            "/gone/python",
            "-m",
            "warmd",
            "serve",
            "--model",
            "/gone",
            "--prompts",
            str(prompts),
            "--port",
            str(free_port()),
        ],
        "EnvironmentVariables": {"WARMD_CONFIG": str(tmp_path / "w.toml"), "HOME": str(tmp_path)},
    }
    mac.plist.parent.mkdir(parents=True)
    mac.plist.write_bytes(plistlib.dumps(old))
    done = mac.run("doctor", "--json")
    found = findings(done)
    assert (done.returncode, done.stderr) == (1, "")
    problems = {name for name, listed in found.items() if any(item["state"] == "problem" for item in listed)}
    assert problems == {"settings", "model", "prompts", "interpreter", "LaunchAgent", "service"}
    assert all(
        item["fix"] for listed in found.values() for item in listed if item["state"] in ("problem", "warning")
    )
    assert found["privacy"][0]["what"].startswith(f"{prompts} is in the Documents folder")
    assert found["service"][0]["what"] == "not loaded into launchd"

    text = mac.run("doctor")
    assert text.returncode == 1
    assert "PROBLEM  interpreter " in text.stdout
    assert text.stdout.splitlines()[-1].endswith("warnings")


def test_the_report_for_people() -> None:
    found = [
        Finding("Python", "ok", "3.12"),
        Finding("service", "problem", "not loaded\x1b", "`warmd install` loads it"),
        Finding("Metal", "unknown", "no Mac"),
    ]
    assert list(report_lines(found)) == [
        "ok       Python   3.12",
        "PROBLEM  service  not loaded",
        "                  fix: `warmd install` loads it",
        "-        Metal    no Mac",
        "",
        "1 problem, 0 warnings",
    ]


def test_a_check_that_fails_itself_hides_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Broken:
        def run(self, *arguments: str) -> Answer:
            raise ZeroDivisionError

    monkeypatch.setenv("HOME", str(tmp_path))
    found = examine(Broken())
    failed = [finding for finding in found if "itself failed" in finding.what]
    assert failed == [
        Finding(
            "service",
            "problem",
            "the check itself failed (ZeroDivisionError)",
            "report this as a fault of warmd",
        )
    ]
    assert found[-1].name == "prefill rate"


def test_what_a_check_had_found_before_it_failed_is_kept() -> None:
    def check() -> Iterator[Finding]:
        yield Finding("port", "problem", "taken")
        raise ZeroDivisionError

    assert list(_guarded("service", check)) == [
        Finding("port", "problem", "taken"),
        Finding(
            "service",
            "problem",
            "the check itself failed (ZeroDivisionError)",
            "report this as a fault of warmd",
        ),
    ]


def test_it_names_the_variables_that_set_something(tmp_path: Path) -> None:
    path = tmp_path / ".config" / "warmd" / "warmd.toml"
    variables = {"WARMD_STATE_DIR": str(tmp_path / "s"), "WARMD_WARM_CHUNK_TOKENS": "64"}
    names = "WARMD_STATE_DIR, WARMD_WARM_CHUNK_TOKENS"
    done = warmd("doctor", "--json", cwd=tmp_path, **variables)
    assert short(done, "settings")["settings"] == ("ok", f"{path} does not exist: defaults, but for {names}")


@pytest.mark.parametrize(
    ("variables", "missing", "there"),
    [
        ((), "{path} does not exist: all defaults", "{path}"),
        (("WARMD_A",), "{path} does not exist: defaults, but for WARMD_A", "{path}, and above it WARMD_A"),
    ],
)
def test_where_settings_come_from(
    variables: tuple[str, ...], missing: str, there: str, tmp_path: Path
) -> None:
    path = tmp_path / "warmd.toml"
    assert sources(path, variables) == missing.format(path=path)
    path.touch()
    assert sources(path, variables) == there.format(path=path)


def test_one_thing_that_is_wrong_hides_nothing_else(tmp_path: Path) -> None:
    mac = Mac(tmp_path)
    port = free_port()
    arguments = ["serve", "--model", "a/b", "--prompts", "~nosuchuser/p.json", "--port", str(port)]
    plist = {
        "Label": "dev.warmd",
        "ProgramArguments": ["/v/bin/python", "-m", "warmd", *arguments],
        "EnvironmentVariables": {
            "WARMD_STATE_DIR": "~nosuchuser/s",
            "WARMD_STORE_PATH": str(tmp_path / "Documents" / "kv"),
            "HOME": str(tmp_path),
        },
    }
    mac.plist.parent.mkdir(parents=True)
    mac.plist.write_bytes(plistlib.dumps(plist))
    done = mac.run("doctor", "--json")
    found = findings(done)
    assert (done.returncode, done.stderr) == (1, "")
    assert [item["what"] for item in found["settings"]] == [
        "WARMD_STATE_DIR: expected a path, found '~nosuchuser/s': there is no home folder to take ~ for"
    ]
    assert found["prompts"][0]["what"] == "~nosuchuser/p.json: there is no home folder to take ~ for"
    assert all(item["fix"] for listed in found.values() for item in listed if item["state"] == "problem")
    assert {"state folder", "log folder", "warm state", "privacy", "disk", "port", "daemon"} <= {*found}


def test_the_services_own_places_are_looked_at(tmp_path: Path) -> None:
    mac = Mac(tmp_path)
    store, adapter = tmp_path / "Documents" / "kv", tmp_path / "Desktop" / "adapter"
    adapter.mkdir(parents=True)
    done = mac.run(
        *("install", "--model", "a/b", "--port", str(free_port()), "--wait", "0"),
        *("--", "--adapter-path", str(adapter), "--draft-model", "c/d"),
        WARMD_STORE_PATH=str(store),
    )
    assert done.returncode == 0
    try:
        found = findings(mac.run("doctor", "--json"))
    finally:
        mac.run("uninstall")
    assert [item["what"] for item in found["privacy"]] == [
        f"{store} is in the Documents folder, which macOS keeps from services",
        f"{adapter} is in the Desktop folder, which macOS keeps from services",
    ]
    assert f"in {store}" in found["warm state"][0]["what"]
    assert found["adapter"][0]["state"] == "ok"
    assert found["draft model"][0]["fix"] == "`hf download c/d`"
