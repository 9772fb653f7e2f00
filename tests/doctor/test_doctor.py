"""`warmd doctor` as a whole, as its user sees it."""

from __future__ import annotations

import json
import plistlib
from pathlib import Path
from typing import Any

import pytest

from tests.commands.terminal import warmd
from tests.launchd.mac import Mac
from tests.serving.process import free_port
from warmd.commands.doctor import report_lines
from warmd.doctor.finding import Finding
from warmd.doctor.scene import examine
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
        *("Python", "engine", "Metal", "wired limit", "settings", "model", "prompts", "state folder"),
        *("log folder", "privacy", "disk", "LaunchAgent", "service", "port", "daemon", "prefill rate"),
    ]
    assert list(tmp_path.iterdir()) == []


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
    found = list(examine(Broken()))
    failed = [finding for finding in found if "itself failed" in finding.what]
    assert failed == [
        Finding(
            "service",
            "unknown",
            "the check itself failed (ZeroDivisionError)",
            "report this as a fault of warmd",
        )
    ]
    assert found[-1].name == "prefill rate"
