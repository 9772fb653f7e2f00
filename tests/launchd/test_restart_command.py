"""Replacing and restarting the service, with a launchctl that really starts processes."""

from __future__ import annotations

import json
import os
import plistlib
import signal
import socket
import subprocess
import sys
import time

import pytest

from tests.commands.terminal import make_environment, outcome
from tests.launchd.mac import UID, Mac, read_plist
from tests.patience import PATIENCE, wait_until
from tests.serving.process import free_port
from warmd.launchd.hold import HELD
from warmd.launchd.replace import NO_SERVICE, NOT_AGAIN


def test_settings_that_went_wrong_are_told_at_a_restart(mac: Mac) -> None:
    mac.run("install", "--model", "a/b", "--port", str(free_port()), "--wait", "0")
    (mac.home / ".config/warmd/warmd.toml").write_text("[warm]\nchunk_tokens = 0\n")
    done = mac.run("restart")
    assert done.returncode == 1
    expected = f"{mac.home}/.config/warmd/warmd.toml: [warm] chunk_tokens: expected at least 1, found 0"
    assert done.stderr.splitlines()[0] == f"warmd: the server has ended (exit code 2): warmd: {expected}"


def test_an_install_that_fails_leaves_the_service_as_it_is(mac: Mac) -> None:
    assert mac.install().returncode == 0
    before, calls = mac.plist.read_bytes(), mac.calls
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = mac.run("install", "--port", str(port))
    assert (done.returncode, mac.calls, mac.plist.read_bytes()) == (3, calls, before)
    assert done.stderr.startswith(f"warmd: http://127.0.0.1:{port} is taken by another program")
    mac.answer(gui=[134], user=[134])
    done = mac.run("install")
    assert (done.returncode, mac.plist.read_bytes()) == (1, before)
    assert done.stderr.splitlines()[0] == (
        "warmd: nothing has changed: the service that was there before is loaded again"
    )
    assert mac.run("restart", "--wait", "0").returncode == 0


def test_a_restart_for_which_there_is_no_room_stops_nothing(mac: Mac) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    assert mac.run("install", "--model", "a/b", "--port", str(port), "--wait", "0").returncode == 0
    mac.wait_for_end()
    calls = mac.calls
    with socket.create_server(("127.0.0.1", port)):
        done = mac.run("restart")
    assert (done.returncode, mac.calls) == (3, calls)
    assert done.stderr.startswith(f"warmd: http://127.0.0.1:{port} is taken by another program")


def test_a_restart_is_of_what_is_loaded_and_says_so(mac: Mac) -> None:
    assert mac.install().returncode == 0
    plist = read_plist(mac.plist)
    port = plist["ProgramArguments"][-1]
    plist["ProgramArguments"][-1] = "9"
    plist["EnvironmentVariables"] |= {"WARMD_LOG_LEVEL": "debug", "MINE": "1"}
    del plist["EnvironmentVariables"]["HF_HUB_OFFLINE"]
    plist["ExitTimeOut"] = 5
    mac.plist.write_bytes(plistlib.dumps(plist))
    done = mac.run("restart", "--wait", "1")
    assert done.stdout.splitlines()[:3] == [
        f"note: {mac.plist} is not what is loaded (command line, HF_HUB_OFFLINE, MINE, WARMD_LOG_LEVEL, "
        "ExitTimeOut): `warmd install` writes it anew, with this shell's variables, and loads it",
        f"restarted in gui/{UID}",
        f"waiting for http://127.0.0.1:{port}, 1 s at most (ctrl-C ends only the waiting)",
    ]


def test_a_file_that_is_not_loaded_is_put_back_when_the_new_one_is_refused(mac: Mac) -> None:
    assert mac.install().returncode == 0
    before = mac.plist.read_bytes()
    mac.run("uninstall")
    mac.plist.write_bytes(before)
    mac.answer(gui=[134], user=[134])
    assert (mac.install().returncode, mac.plist.read_bytes()) == (1, before)


def test_a_model_is_not_installed_over_a_service_that_cannot_be_loaded_again_and_has_no_room(
    mac: Mac,
) -> None:
    assert mac.install().returncode == 0
    mac.plist.write_bytes(b"no plist")
    calls = mac.calls
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = mac.run("install", "--model", "c/d", "--port", port, "--wait", "0")
    assert (done.returncode, mac.calls, mac.plist.read_bytes()) == (3, calls, b"no plist")
    mac.answer(gui=[134], user=[134])
    done = mac.run("install", "--model", "c/d", "--port", str(free_port()), "--wait", "0")
    assert done.returncode == 1
    assert done.stderr.startswith(f"warmd: {NOT_AGAIN}; {NO_SERVICE}: ")


@pytest.mark.parametrize("number", HELD)
def test_a_signal_while_the_old_service_goes_leaves_it_loaded(mac: Mac, number: int) -> None:
    assert mac.install().returncode == 0
    before = mac.plist.read_bytes()
    # The old one goes when the signals have come, and not before.
    lingers = mac.launchd / "lingers"
    lingers.touch()
    process = subprocess.Popen(
        [sys.executable, "-m", "warmd", "install", "--model", "c/d", "--port", str(free_port())],
        cwd=mac.home,
        env=make_environment(mac.home, **mac.environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: mac.calls[-1].startswith("bootout"))
    # As a terminal does: to all that it has in the foreground, and people press ctrl-C again.
    for _ in range(3):
        os.killpg(process.pid, number)
        time.sleep(0.1)
    lingers.unlink()
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert errors.splitlines() == [
        "warmd: this ends as soon as there is a service again",
        "warmd: nothing has changed: the service that was there before is loaded again",
    ]
    assert (mac.calls[-1], mac.plist.read_bytes()) == (f"bootstrap gui/{UID} {mac.plist}", before)
    assert mac.run("restart", "--wait", "0").returncode == 0


def test_what_is_not_installed_can_be_removed_but_not_restarted(mac: Mac) -> None:
    removed, restarted = mac.run("uninstall"), mac.run("restart")
    assert (removed.returncode, removed.stdout.splitlines()[0]) == (0, "the service is not installed")
    assert outcome(restarted) == (
        1,
        "",
        "warmd: the service is not loaded; `warmd install --model M` installs and starts it\n",
    )


def test_a_file_that_cannot_be_read_stops_only_what_depends_on_it(mac: Mac) -> None:
    mac.plist.parent.mkdir(parents=True)
    mac.plist.write_text("<plist>")
    assert mac.run("install").stderr == (
        f"warmd: {mac.plist}: not a property list (ExpatError); "
        "`warmd uninstall` removes it, `warmd install --model M` writes it\n"
    )
    # What it named as folders is not known.
    assert (mac.run("uninstall", "--purge").returncode, mac.plist.exists()) == (1, True)
    assert mac.run("install", "--model", "a/b", "--port", str(free_port()), "--wait", "0").returncode == 0
    assert mac.run("uninstall").returncode == 0
    assert not mac.plist.exists()


def test_a_restart_does_without_a_file_that_cannot_be_read(mac: Mac) -> None:
    assert mac.install().returncode == 0
    mac.plist.write_text("<plist>")
    done = mac.run("restart", "--wait", "0")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"note: {mac.plist}: not a property list (ExpatError); "
        "`warmd uninstall` removes it, `warmd install --model M` writes it",
        f"restarted in gui/{UID}",
    ]
    found = {each["name"]: each for each in json.loads(mac.run("doctor", "--json").stdout)["findings"]}
    assert found["looked at"]["what"].endswith(" as no daemon runs and the service's file cannot be read")
    # It is there.
    assert "gone" not in found["service"]["what"]


def test_the_doctor_tells_what_is_not_loaded(mac: Mac) -> None:
    assert mac.install().returncode == 0
    plist = read_plist(mac.plist)
    plist["EnvironmentVariables"]["WARMD_LOG_LEVEL"] = "debug"
    mac.plist.write_bytes(plistlib.dumps(plist))
    found = [
        each
        for each in json.loads(mac.run("doctor", "--json").stdout)["findings"]
        if each["name"] == "LaunchAgent" and each["state"] == "warning"
    ]
    assert [each["what"] for each in found] == [f"{mac.plist} is not what is loaded: WARMD_LOG_LEVEL"]
