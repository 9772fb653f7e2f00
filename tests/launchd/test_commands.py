"""Installing, restarting and removing the service, with a launchctl that really starts processes."""

from __future__ import annotations

import json
import os
import plistlib
import pwd
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands.terminal import make_environment, outcome, warmd
from tests.disk.made import make_piece, put
from tests.launchd.mac import UID, Mac
from tests.serving.process import free_port, serving, write
from warmd.config import load_settings
from warmd.disk.files import Files
from warmd.launchd.agent import find_faults, serve_arguments
from warmd.launchd.hold import HELD
from warmd.launchd.replace import NO_SERVICE, NOT_AGAIN
from warmd.launchd.variables import TEMPLATES_OWN
from warmd.memory.size import format_size
from warmd.settings import Settings

RATES = '{"m": {"launchd": 100.0}}'
NO_LAUNCHCTL = (
    "warmd: there is no launchctl here: this needs macOS (elsewhere, let a supervisor such as systemd "
    "run `warmd serve`)\n"
)


@pytest.fixture
def mac() -> Iterator[Mac]:
    # Short, for the socket; the folder goes only after the processes in it.
    with tempfile.TemporaryDirectory(prefix="warmd-test-", ignore_cleanup_errors=True) as folder:
        mac = Mac(Path(folder).resolve())
        yield mac
        mac.run("uninstall")


def read(path: Path) -> dict[str, Any]:
    return dict(plistlib.loads(path.read_bytes()))


def test_a_server_is_installed_restarted_and_removed(mac: Mac, models: dict[str, Path]) -> None:
    port = free_port()
    write(mac.home / "prompts.json", [[{"role": "system", "content": "Be brief."}]])
    done = mac.run(
        *("install", "--model", str(models["llama"]), "--prompts", "prompts.json", "--port", str(port)),
        *("--", "--max-tokens", "7"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    logs = mac.home / ".local/state/warmd/log"
    assert done.stdout.splitlines() == [
        f"settings: {mac.home}/.config/warmd/warmd.toml (written; every line is a comment)",
        "note: the service has variables of its own: HF_HUB_OFFLINE, WARMD_STATE_DIR",
        f"service: {mac.plist}, loaded into gui/{UID}",
        f"logs: {logs} (`warmd logs -f`)",
        f"waiting for http://127.0.0.1:{port}, 120 s at most (ctrl-C ends only the waiting)",
        f"ready: http://127.0.0.1:{port}",
    ]
    assert mac.calls == [f"bootstrap gui/{UID} {mac.plist}"]
    plist = read(mac.plist)
    assert find_faults(plist, mac.plist) == ()
    assert serve_arguments(plist) == (
        *("--model", str(models["llama"]), "--max-tokens", "7"),
        *("--prompts", str(mac.home / "prompts.json"), "--port", str(port)),
    )
    assert stat.S_IMODE(mac.plist.stat().st_mode) == 0o644
    assert stat.S_IMODE((mac.home / "s").stat().st_mode) == 0o700

    first = json.loads(mac.run("status", "--json").stdout)["pid"]
    restarted = mac.run("restart")
    assert (restarted.returncode, restarted.stdout) == (
        0,
        f"restarted in gui/{UID}\n"
        f"waiting for http://127.0.0.1:{port}, 120 s at most (ctrl-C ends only the waiting)\n"
        f"ready: http://127.0.0.1:{port}\n",
    )
    second = json.loads(mac.run("status", "--json").stdout)["pid"]
    assert second != first

    # Once more, with nothing said: the file is renewed and runs the same, in a process of its own.
    again = mac.run("install")
    assert (again.returncode, again.stderr) == (0, "")
    assert read(mac.plist) == plist
    assert json.loads(mac.run("status", "--json").stdout)["pid"] != second
    target = f"gui/{UID}/dev.warmd"
    assert mac.calls[1:] == [
        f"kill SIGTERM {target}",
        f"kickstart -k {target}",
        f"bootout {target}",
        f"bootstrap gui/{UID} {mac.plist}",
    ]

    logged = mac.run("logs", "--json").stdout.splitlines()
    events = [json.loads(line)["event"] for line in logged]
    assert events.count("daemon.started") == 3
    assert events.count("daemon.stopped") == 2
    # launchd's own copy, which nobody rotates, has nothing of that.
    assert (logs / "launchd.log").read_text() == ""

    doctor = json.loads(mac.run("doctor", "--json").stdout)
    states = {finding["name"]: finding["state"] for finding in doctor["findings"]}
    assert {name: states[name] for name in ("LaunchAgent", "interpreter", "service", "port", "daemon")} == {
        "LaunchAgent": "ok",
        "interpreter": "ok",
        "service": "ok",
        "port": "ok",
        "daemon": "ok",
    }

    removed = mac.run("uninstall", "--purge")
    assert (removed.returncode, removed.stderr) == (0, "")
    assert not mac.plist.exists()
    # It may be anybody's choice, so it is only emptied.
    assert list((mac.home / "s").iterdir()) == []
    assert not (mac.home / ".cache/warmd").exists()
    assert mac.run("status").returncode == 4
    assert (mac.home / ".config/warmd/warmd.toml").exists()


def test_a_server_that_cannot_start_is_told_with_its_reason(mac: Mac, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "no-such"}')
    (tmp_path / "model.safetensors").touch()
    done = mac.run("install", "--model", str(tmp_path), "--port", str(free_port()))
    assert done.returncode == 1
    assert done.stderr.startswith("warmd: the server has ended (exit code 3): cannot load the model")
    assert done.stderr.endswith("`warmd doctor` looks for the cause\n")


def test_settings_that_went_wrong_are_told_at_a_restart(mac: Mac) -> None:
    mac.run("install", "--model", "a/b", "--port", str(free_port()), "--wait", "0")
    (mac.home / ".config/warmd/warmd.toml").write_text("[warm]\nchunk_tokens = 0\n")
    done = mac.run("restart")
    assert done.returncode == 1
    expected = f"{mac.home}/.config/warmd/warmd.toml: [warm] chunk_tokens: expected at least 1, found 0"
    assert done.stderr.splitlines()[0] == f"warmd: the server has ended (exit code 2): warmd: {expected}"


def test_without_a_graphical_login_it_runs_in_the_background(mac: Mac) -> None:
    (mac.launchd / "no-gui").touch()
    done = mac.run("install", "--model", "some/model", "--port", str(free_port()), "--wait", "0")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"loaded into user/{UID}\nnote: nobody is logged in at the screen" in done.stdout
    assert read(mac.plist)["LimitLoadToSessionType"] == "Background"
    assert [call.split()[:2] for call in mac.calls] == [
        ["bootstrap", f"gui/{UID}"],
        ["bootstrap", f"user/{UID}"],
    ]


def test_error_five_after_a_bootout_is_tried_again(mac: Mac) -> None:
    mac.answer(gui=[5, 5])
    done = mac.run("install", "--model", "some/model", "--port", str(free_port()), "--wait", "0")
    assert (done.returncode, done.stderr) == (0, "")
    assert mac.calls == [f"bootstrap gui/{UID} {mac.plist}"] * 3


def test_an_error_of_launchd_is_one_line(mac: Mac) -> None:
    mac.answer(gui=[134])
    done = mac.run("install", "--model", "some/model", "--port", str(free_port()))
    assert (done.returncode, done.stderr) == (
        1,
        f"warmd: launchctl bootstrap gui/{UID}: Bootstrap failed: 134: Unknown (error 134); "
        "`warmd doctor` looks for the cause\n",
    )


def test_a_port_that_is_taken_is_told_before_anything_is_loaded(mac: Mac) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = mac.run("install", "--model", "some/model", "--port", str(port))
    assert (done.returncode, mac.calls, mac.plist.exists()) == (3, [], False)
    assert done.stderr.startswith(f"warmd: http://127.0.0.1:{port} is taken by another program")


def install(mac: Mac, *arguments: str, **environment: str) -> Any:
    """Install for a model that is not there: the process ends, and the job stays loaded."""
    port = str(free_port())
    return mac.run("install", "--model", "a/b", "--port", port, "--wait", "0", *arguments, **environment)


def test_an_install_that_fails_leaves_the_service_as_it_is(mac: Mac) -> None:
    assert install(mac).returncode == 0
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
    wait_for_end(mac)
    calls = mac.calls
    with socket.create_server(("127.0.0.1", port)):
        done = mac.run("restart")
    assert (done.returncode, mac.calls) == (3, calls)
    assert done.stderr.startswith(f"warmd: http://127.0.0.1:{port} is taken by another program")


def wait_for_end(mac: Mac) -> None:
    """Until the service's process has ended."""
    job = mac.launchd / f"gui+{UID}+dev.warmd.json"
    while json.loads(job.read_text())["exit"] is None:
        time.sleep(0.02)


def test_a_restart_is_of_what_is_loaded_and_says_so(mac: Mac) -> None:
    assert install(mac).returncode == 0
    plist = read(mac.plist)
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
    assert install(mac).returncode == 0
    before = mac.plist.read_bytes()
    mac.run("uninstall")
    mac.plist.write_bytes(before)
    mac.answer(gui=[134], user=[134])
    assert (install(mac).returncode, mac.plist.read_bytes()) == (1, before)


def test_a_model_is_not_installed_over_a_service_that_cannot_be_loaded_again_and_has_no_room(
    mac: Mac,
) -> None:
    assert install(mac).returncode == 0
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
    assert install(mac).returncode == 0
    before = mac.plist.read_bytes()
    process = subprocess.Popen(
        [sys.executable, "-m", "warmd", "install", "--model", "c/d", "--port", str(free_port())],
        cwd=mac.home,
        env=make_environment(mac.home, **mac.environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    # It looks for a second at least whether the old one is gone.
    while not mac.calls[-1].startswith("bootout") and process.poll() is None:
        time.sleep(0.02)
    # As a terminal does: to all that it has in the foreground, and people press ctrl-C again.
    for _ in range(3):
        os.killpg(process.pid, number)
        time.sleep(0.1)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert errors.splitlines() == [
        "warmd: this ends as soon as there is a service again",
        "warmd: nothing has changed: the service that was there before is loaded again",
    ]
    assert (mac.calls[-1], mac.plist.read_bytes()) == (f"bootstrap gui/{UID} {mac.plist}", before)
    assert mac.run("restart", "--wait", "0").returncode == 0


@pytest.mark.parametrize("word", ["a\x01b", "a\x1b[31m", "\udcff"])
def test_what_a_property_list_cannot_hold_is_one_line(word: str, mac: Mac) -> None:
    done = install(mac, "--", "--chat-template", word)
    assert (done.returncode, done.stdout, mac.calls) == (1, "", [])
    assert done.stderr == (
        f"warmd: the LaunchAgent would not work: ProgramArguments: {word!r} has characters that "
        "a property list cannot hold\n"
    )


def test_variables_come_and_go_with_the_shell(mac: Mac) -> None:
    install(mac, WARMD_LOG_KEEP="3", WARMD_STORE_PATH="kv", HF_HUB_CACHE="hub")
    plist = read(mac.plist)
    variables = plist["EnvironmentVariables"]
    assert (variables["WARMD_LOG_KEEP"], variables["WARMD_STORE_PATH"]) == ("3", f"{mac.home}/kv")
    assert variables["HF_HUB_CACHE"] == f"{mac.home}/hub"
    variables["MLX_METAL_FAST_SYNCH"] = "1"
    variables["WARMD_GONE"] = "1"
    mac.plist.write_bytes(plistlib.dumps(plist))
    done = mac.run("doctor", "--json")
    (finding,) = (each for each in json.loads(done.stdout)["findings"] if each["name"] == "settings")
    assert finding["what"].startswith("WARMD_GONE: unknown variable")
    assert finding["fix"].endswith(
        f"The variables are in {mac.plist}: `warmd install` replaces them by those of its shell"
    )
    done = mac.run("install", "--wait", "0", WARMD_LOG_LEVEL="debug")
    assert (done.returncode, done.stderr) == (0, "")
    gone = "HF_HUB_CACHE, WARMD_GONE, WARMD_LOG_KEEP, WARMD_STORE_PATH"
    assert f"note: not given any more, as this shell does not have them: {gone}\n" in done.stdout
    assert {*read(mac.plist)["EnvironmentVariables"]} - {*TEMPLATES_OWN} == {
        *("HF_HUB_OFFLINE", "MLX_METAL_FAST_SYNCH", "WARMD_LOG_LEVEL", "WARMD_STATE_DIR")
    }


def test_a_new_model_says_what_it_does_not_keep(mac: Mac) -> None:
    install(mac, "--prompts", "p.json", "--", "--kv-bits", "8")
    done = mac.run("install", "--model", "c/d", "--port", str(free_port()), "--wait", "0")
    assert "note: not given any more: --kv-bits, --prompts (a new --model begins anew)\n" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "environment", "error"),
    [
        (
            (),
            {"WARMD_LOG_KEPT": "3"},
            "warmd: WARMD_LOG_KEPT: unknown variable; the nearest known one is WARMD_LOG_KEEP",
        ),
        (("--", "--memory-limit", "lots"), {}, "warmd: --memory-limit: "),
        (("--", "--log-level", "loud"), {}, "warmd serve: error: argument --log-level: invalid choice"),
    ],
)
def test_a_service_that_could_not_start_is_not_installed(
    mac: Mac, arguments: tuple[str, ...], environment: dict[str, str], error: str
) -> None:
    done = install(mac, *arguments, **environment)
    assert (done.returncode, mac.calls, mac.plist.exists()) == (2, [], False)
    assert done.stderr.startswith(error)


def test_nobody_need_read_what_an_installation_says(mac: Mac) -> None:
    (mac.home / "model").mkdir()
    (mac.home / "model" / "config.json").write_text('{"model_type": "no-such"}')
    (mac.home / "model" / "model.safetensors").touch()
    command = f"{sys.executable} -m warmd install --model ./model --port {free_port()}"
    command += " | true; exit ${PIPESTATUS[0]}"
    environment = make_environment(mac.home, **mac.environment)
    done = subprocess.run(
        ["bash", "-c", command], cwd=mac.home, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith("warmd: the server has ended (exit code 3): cannot load the model")


def test_a_disk_that_is_full_leaves_no_half_settings(mac: Mac) -> None:
    # In KiB: the LaunchAgent fits, the settings do not.
    command = f"ulimit -f 3; {sys.executable} -m warmd install --model a/b --port {free_port()} --wait 0"
    environment = make_environment(mac.home, **mac.environment)
    done = subprocess.run(
        ["bash", "-c", command], cwd=mac.home, env=environment, capture_output=True, text=True
    )
    path = mac.home / ".config/warmd/warmd.toml"
    assert (done.returncode, done.stderr) == (1, f"warmd: cannot change {path}: File too large\n")
    assert (list(path.parent.iterdir()), mac.calls) == ([], [])


def test_an_empty_home_is_as_good_as_none(tmp_path: Path) -> None:
    done = warmd("install", "--dry-run", "--model", "a/b", cwd=tmp_path, HOME="")
    home = plistlib.loads(done.stdout.encode())["EnvironmentVariables"]["HOME"]
    assert home == pwd.getpwuid(os.getuid()).pw_dir


def test_a_purge_goes_by_the_variables_of_the_service(mac: Mac, tmp_path: Path) -> None:
    install(mac, WARMD_STATE_DIR=str(tmp_path / "mine"), WARMD_STORE_PATH=str(tmp_path / "kv"))
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
    install(mac, WARMD_STATE_DIR=str(state), WARMD_STORE_PATH=str(tmp_path / "kv"))
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
    install(mac, WARMD_STATE_DIR=str(mac.home))
    calls = mac.calls
    done = mac.run("uninstall", "--purge")
    assert (done.returncode, mac.plist.exists(), mac.calls) == (2, True, calls)
    assert done.stderr == (
        f"warmd: --purge: {mac.home} is the home folder: nothing is removed; `warmd uninstall` goes without\n"
    )


def test_what_cannot_be_found_is_not_purged_and_nothing_is_removed(mac: Mac) -> None:
    install(mac)
    (mac.home / ".config/warmd/warmd.toml").write_text("[state]\ndir = 3\n")
    done = mac.run("uninstall", "--purge")
    assert (done.returncode, mac.plist.exists()) == (2, True)
    assert mac.run("uninstall").returncode == 0


def test_a_dry_run_prints_the_file_and_leaves_no_trace(tmp_path: Path) -> None:
    done = warmd("install", "--dry-run", "--model", "some/model", cwd=tmp_path, HF_HUB_OFFLINE="0")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "note: there is no launchctl here: only a Mac can use this",
        f"note: {tmp_path}/.config/warmd/prompts.json does not exist yet; it is picked up when it does",
        "note: some/model is not in the Hugging Face cache: the first start downloads it",
        "note: the service has variables of its own: HF_HUB_OFFLINE",
    ]
    plist = plistlib.loads(done.stdout.encode())
    assert find_faults(plist, Path("dev.warmd.plist")) == ()
    assert plist["EnvironmentVariables"]["HOME"] == str(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_folders_and_files_are_named_from_the_root(tmp_path: Path) -> None:
    for folder in ("model", "adapter", "draft"):
        (tmp_path / folder).mkdir()
    for folder in ("model", "draft"):
        (tmp_path / folder / "config.json").touch()
        (tmp_path / folder / "w.safetensors").touch()
    (tmp_path / "w.toml").touch()
    done = warmd(
        *("install", "--dry-run", "--model", "./model", "--prompts", "~/p.json", "--"),
        *("--adapter-path", "adapter", "--draft-model=draft"),
        cwd=tmp_path,
        WARMD_CONFIG="w.toml",
        WARMD_WARM_CHUNK_TOKENS="64",
        HF_TOKEN="hf_secret",
    )
    plist = plistlib.loads(done.stdout.encode())
    assert serve_arguments(plist) == (
        *("--model", f"{tmp_path}/model", "--adapter-path", f"{tmp_path}/adapter"),
        *("--draft-model", f"{tmp_path}/draft", "--prompts", f"{tmp_path}/p.json"),
    )
    variables = plist["EnvironmentVariables"]
    assert {name: value for name, value in variables.items() if name.startswith("WARMD_")} == {
        "WARMD_CONFIG": f"{tmp_path}/w.toml",
        "WARMD_WARM_CHUNK_TOKENS": "64",
    }
    assert "hf_secret" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (
            ("--model", "no name", "--dry-run"),
            3,
            "warmd: cannot load the model 'no name': no such folder, and no name of the Hugging Face hub: "
            "those are OWNER/NAME",
        ),
        (
            ("--model", "{cwd}", "--dry-run"),
            3,
            "warmd: cannot load the model '{cwd}': the folder has no config.json",
        ),
        ((), 2, "warmd: install needs --model M (a model folder or Hugging Face name)"),
        (("--model", "./nowhere"), 3, "warmd: cannot load the model '{cwd}/nowhere': no such folder"),
        (("--model", "a/b", "--", "--port", "1"), 2, "warmd: --port goes before --"),
        (("--model", "a/b", "x"), 2, "warmd: unexpected argument 'x': flags for the server go after --"),
        (
            ("--model", "a/b", "--port", "70000"),
            2,
            "warmd install: error: argument --port: expected 1 to 65535, found 70000; "
            "see `warmd install --help`",
        ),
    ],
)
def test_a_wrong_command_line_is_one_line(
    arguments: tuple[str, ...], code: int, error: str, tmp_path: Path
) -> None:
    done = warmd("install", *(word.format(cwd=tmp_path) for word in arguments), cwd=tmp_path)
    assert outcome(done) == (code, "", f"{error.format(cwd=tmp_path)}\n")


@pytest.mark.parametrize("command", [("install", "--model", "a/b"), ("uninstall",), ("restart",)])
def test_without_launchctl_there_is_one_line_and_nothing_is_written(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    done = warmd(*command, cwd=tmp_path, PATH=str(tmp_path))
    assert outcome(done) == (3, "", NO_LAUNCHCTL)
    assert list(tmp_path.iterdir()) == []


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


def test_settings_that_are_there_stay(mac: Mac) -> None:
    path = mac.home / ".config/warmd/warmd.toml"
    path.parent.mkdir(parents=True)
    path.write_text("[warm]\nchunk_tokens = 99\n")
    done = mac.run("install", "--model", "a/b", "--port", str(free_port()), "--wait", "0")
    assert (done.returncode, path.read_text()) == (0, "[warm]\nchunk_tokens = 99\n")
    assert done.stdout.startswith(f"settings: {path}\n")


def test_wrong_settings_stop_before_anything_is_loaded(mac: Mac) -> None:
    done = mac.run("install", "--model", "a/b", WARMD_CONFIG=str(mac.home / "w.toml"), WARMD_WARM_CHUNK="1")
    assert (done.returncode, mac.calls) == (2, [])
    assert done.stderr.startswith("warmd: WARMD_WARM_CHUNK: unknown variable")


def test_the_settings_that_are_written_are_the_defaults(mac: Mac) -> None:
    mac.run("install", "--model", "a/b", "--port", str(free_port()), "--wait", "0")
    path = mac.home / ".config/warmd/warmd.toml"
    assert load_settings({"WARMD_CONFIG": str(path)}) == Settings()
    assert "\n# chunk_tokens = 1024\n" in path.read_text()


def test_a_folder_that_cannot_be_made_is_one_line(mac: Mac) -> None:
    (mac.home / ".config").write_text("not a folder")
    done = mac.run("install", "--model", "a/b")
    expected = f"warmd: cannot change {mac.home}/.config/warmd: Not a directory\n"
    assert (done.returncode, done.stderr) == (1, expected)


def test_a_file_in_place_of_a_folder_is_one_line(mac: Mac) -> None:
    (mac.home / "Library").write_text("not a folder")
    done = mac.run("uninstall")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_a_restart_does_without_a_file_that_cannot_be_read(mac: Mac) -> None:
    assert install(mac).returncode == 0
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
    assert install(mac).returncode == 0
    plist = read(mac.plist)
    plist["EnvironmentVariables"]["WARMD_LOG_LEVEL"] = "debug"
    mac.plist.write_bytes(plistlib.dumps(plist))
    found = [
        each
        for each in json.loads(mac.run("doctor", "--json").stdout)["findings"]
        if each["name"] == "LaunchAgent" and each["state"] == "warning"
    ]
    assert [each["what"] for each in found] == [f"{mac.plist} is not what is loaded: WARMD_LOG_LEVEL"]


def test_a_link_that_leads_nowhere_is_told_before_anything_is_stopped(mac: Mac) -> None:
    assert install(mac).returncode == 0
    mac.plist.unlink()
    mac.plist.symlink_to(mac.home / "gone" / "x.plist")
    calls = mac.calls
    done = install(mac)
    assert (done.returncode, done.stdout, mac.calls) == (1, "", calls)
    assert done.stderr == (
        f"warmd: cannot change {mac.plist}, a link to {mac.home}/gone/x.plist: No such file or directory\n"
    )


def test_a_file_that_cannot_be_removed_leaves_word_that_the_service_is_stopped(mac: Mac) -> None:
    assert install(mac).returncode == 0
    mac.plist.unlink()
    mac.plist.mkdir()
    done = mac.run("uninstall")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "note: the service is stopped, until the next login"


def test_starts_are_found_also_where_the_settings_are_wrong(mac: Mac) -> None:
    install(mac, WARMD_STATE_DIR=str(mac.home / "s"))
    wait_for_end(mac)
    (mac.home / ".config/warmd/warmd.toml").write_text("nonsense = 1\n")
    mac.run("restart")
    found = {each["name"]: each for each in json.loads(mac.run("doctor", "--json").stdout)["findings"]}
    assert "unknown key" in found["starts"]["what"]


def test_a_port_that_another_warmd_has_is_told_as_such(mac: Mac, models: dict[str, Path]) -> None:
    write(mac.home / "prompts.json", [])
    with serving(models["llama"], mac.home / "prompts.json") as server:
        server.wait_for("daemon.ready")
        done = mac.run("install", "--model", "a/b", "--port", str(server.port))
    assert done.returncode == 3
    assert done.stderr == (
        f"warmd: http://127.0.0.1:{server.port} is taken by another warmd (pid {server.process.pid}): "
        "stop that one, or choose another port with `warmd install --port N`\n"
    )


def test_a_path_with_a_line_break_is_told_in_one_line(mac: Mac) -> None:
    done = mac.run("install", "--dry-run", "--model", "a/b", "--prompts", "a\nb.json")
    assert f"note: {mac.home}/a\\nb.json does not exist yet; it is picked up when it does\n" in done.stderr
    assert (
        mac.run("install", "--model", "a/b", "--prompts", "a\nb.json", "--wait", "0")
        .stdout.splitlines()[1]
        .startswith(f"note: {mac.home}/a\\nb.json does not exist yet")
    )
