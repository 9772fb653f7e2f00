"""Installing the service, with a launchctl that really starts processes."""

from __future__ import annotations

import json
import os
import plistlib
import pwd
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.terminal import make_environment, outcome, warmd
from tests.launchd.mac import UID, Mac, read_plist
from tests.serving.process import free_port, serving, write
from warmd.config import load_settings
from warmd.launchd.agent import find_faults, serve_arguments
from warmd.launchd.variables import TEMPLATES_OWN
from warmd.settings import Settings

NO_LAUNCHCTL = (
    "warmd: there is no launchctl here: this needs macOS (elsewhere, let a supervisor such as systemd "
    "run `warmd serve`)\n"
)


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
    plist = read_plist(mac.plist)
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
    assert read_plist(mac.plist) == plist
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


def test_without_a_graphical_login_it_runs_in_the_background(mac: Mac) -> None:
    (mac.launchd / "no-gui").touch()
    done = mac.run("install", "--model", "some/model", "--port", str(free_port()), "--wait", "0")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"loaded into user/{UID}\nnote: nobody is logged in at the screen" in done.stdout
    assert read_plist(mac.plist)["LimitLoadToSessionType"] == "Background"
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


@pytest.mark.parametrize("word", ["a\x01b", "a\x1b[31m", "\udcff"])
def test_what_a_property_list_cannot_hold_is_one_line(word: str, mac: Mac) -> None:
    done = mac.install("--", "--chat-template", word)
    assert (done.returncode, done.stdout, mac.calls) == (1, "", [])
    assert done.stderr == (
        f"warmd: the LaunchAgent would not work: ProgramArguments: {word!r} has characters that "
        "a property list cannot hold\n"
    )


def test_variables_come_and_go_with_the_shell(mac: Mac) -> None:
    mac.install(WARMD_LOG_KEEP="3", WARMD_STORE_PATH="kv", HF_HUB_CACHE="hub")
    plist = read_plist(mac.plist)
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
    assert {*read_plist(mac.plist)["EnvironmentVariables"]} - {*TEMPLATES_OWN} == {
        *("HF_HUB_OFFLINE", "MLX_METAL_FAST_SYNCH", "WARMD_LOG_LEVEL", "WARMD_STATE_DIR")
    }


def test_a_new_model_says_what_it_does_not_keep(mac: Mac) -> None:
    mac.install("--prompts", "p.json", "--", "--kv-bits", "8")
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
    done = mac.install(*arguments, **environment)
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


def test_a_dry_run_prints_the_file_and_leaves_no_trace(tmp_path: Path) -> None:
    arguments = ("--model", "some/model", "--port", str(free_port()))
    done = warmd("install", "--dry-run", *arguments, cwd=tmp_path, HF_HUB_OFFLINE="0")
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
    done = mac.install()
    expected = f"warmd: cannot change {mac.home}/.config/warmd: Not a directory\n"
    assert (done.returncode, done.stderr) == (1, expected)


def test_a_file_in_place_of_a_folder_is_one_line(mac: Mac) -> None:
    (mac.home / "Library").write_text("not a folder")
    done = mac.run("uninstall")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_a_link_that_leads_nowhere_is_told_before_anything_is_stopped(mac: Mac) -> None:
    assert mac.install().returncode == 0
    mac.plist.unlink()
    mac.plist.symlink_to(mac.home / "gone" / "x.plist")
    calls = mac.calls
    done = mac.install()
    assert (done.returncode, done.stdout, mac.calls) == (1, "", calls)
    assert done.stderr == (
        f"warmd: cannot change {mac.plist}, a link to {mac.home}/gone/x.plist: No such file or directory\n"
    )


def test_starts_are_found_also_where_the_settings_are_wrong(mac: Mac) -> None:
    mac.install(WARMD_STATE_DIR=str(mac.home / "s"))
    mac.wait_for_end()
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


def test_a_dry_run_notes_that_the_port_is_taken_unless_by_the_service_itself(mac: Mac) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = mac.run("install", "--dry-run", "--model", "a/b", "--port", port)
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1] == (
        f"warning: http://127.0.0.1:{port} is taken by another program (`lsof -i -P | grep LISTEN` names "
        "it): stop that one, or choose another port with `warmd install --port N`"
    )
    assert "taken" not in mac.run("install", "--dry-run", "--model", "a/b", "--port", port).stderr


def test_a_path_with_a_line_break_is_told_in_one_line(mac: Mac) -> None:
    done = mac.run("install", "--dry-run", "--model", "a/b", "--prompts", "a\nb.json")
    assert f"note: {mac.home}/a\\nb.json does not exist yet; it is picked up when it does\n" in done.stderr
    lines = mac.install("--prompts", "a\nb.json").stdout.splitlines()
    assert lines[1].startswith(f"note: {mac.home}/a\\nb.json does not exist yet")
