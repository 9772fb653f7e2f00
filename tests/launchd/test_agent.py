"""The LaunchAgent as a value: what is written, which rules it keeps, and how it differs from an older one."""

from __future__ import annotations

import os
import plistlib
import re
import struct
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmd.launchd.agent import (
    LARGEST,
    Agent,
    UnreadablePlistError,
    build_plist,
    differing_keys,
    find_faults,
    read_plist,
    serve_arguments,
    to_bytes,
    variables_of,
)
from warmd.launchd.flags import flag_value
from warmd.launchd.packaged import read_packaged

ROOT = Path(__file__).parents[2]
HOME = Path("/Users/me")
FILE = HOME / "Library/LaunchAgents/dev.warmd.plist"
AGENT = Agent(
    python=Path("/Users/me/venv/bin/python"),
    arguments=("--model", "/models/x", "--kv-bits", "8"),
    home=HOME,
    logs=HOME / "Library/Logs/warmd",
    environment={"WARMD_CONFIG": "/Users/me/w.toml"},
)
VARIABLES = {"HOME": "/h", "PATH": "/bin", "PYTHONUNBUFFERED": "1"}


def test_what_is_written() -> None:
    expected = {
        "Label": "dev.warmd",
        "ProgramArguments": [
            "/Users/me/venv/bin/python",
            "-P",
            "-m",
            "warmd",
            "serve",
            "--model",
            "/models/x",
            "--kv-bits",
            "8",
        ],
        "EnvironmentVariables": {
            "HOME": "/Users/me",
            "PATH": "/Users/me/venv/bin:/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "PYTHONUNBUFFERED": "1",
            "WARMD_CONFIG": "/Users/me/w.toml",
        },
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 30,
        "ExitTimeOut": 30,
        "ProcessType": "Interactive",
        "SoftResourceLimits": {"NumberOfFiles": 4096},
        "Umask": 0o077,
        "StandardOutPath": "/Users/me/Library/Logs/warmd/launchd.log",
        "StandardErrorPath": "/Users/me/Library/Logs/warmd/launchd.log",
    }
    assert expected == build_plist(AGENT)
    assert expected == plistlib.loads(to_bytes(build_plist(AGENT)))


def test_a_session_in_the_background_has_its_word() -> None:
    background = build_plist(replace(AGENT, session="Background"))
    assert background.pop("LimitLoadToSessionType") == "Background"
    assert build_plist(AGENT) == background


def test_what_is_written_keeps_the_rules() -> None:
    assert find_faults(build_plist(AGENT), FILE) == ()
    assert find_faults(build_plist(replace(AGENT, session="Background")), FILE) == ()


def test_the_template_is_the_one_in_the_checkout_and_lacks_only_its_words() -> None:
    assert read_packaged("dev.warmd.plist") == (ROOT / "launchd" / "dev.warmd.plist").read_bytes()
    assert read_packaged("warmd.toml") == (ROOT / "config" / "warmd.toml").read_bytes()
    assert b"@" not in to_bytes(build_plist(AGENT))


def explained() -> dict[str, str]:
    """The keys in the README's table, with the value beside each."""
    table = (ROOT / "launchd" / "README.md").read_text("utf-8").partition("## What each key")[2]
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (.+?) \| .{5,} \|$", table, re.MULTILINE)
    return {key: value for keys, value in rows for key in re.findall(r"`(\w+)`", keys)}


def as_explained(key: str, value: Any) -> str:
    """How that table shows a value of the template."""
    match value:
        case dict() if key == "EnvironmentVariables":
            return ", ".join(f"`{name}`" for name in value)
        case dict():
            return ", ".join(f"`{name}: {str(each).lower()}`" for name, each in value.items())
        case list():
            return f"interpreter, `{' '.join(value[1:-1])} …`"
        case str():
            return f"`{value.replace('@LOGS@', '~/Library/Logs/warmd')}`"
        case _:
            return str(value).lower()


def test_the_readme_explains_each_key_and_no_other() -> None:
    template = plistlib.loads(read_packaged("dev.warmd.plist"))
    # That one is written only where launchd would not take the rest without it.
    assert {*template, "LimitLoadToSessionType"} == set(explained())
    shown = {key: as_explained(key, value) for key, value in template.items()}
    # Something may be said of a value, too.
    assert shown == {key: explained()[key][: len(value)] for key, value in shown.items()}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"Label": "dev.other"}, "Label: expected the file's name, 'dev.warmd', found 'dev.other'"),
        ({"RunAtLoad": False}, "RunAtLoad: expected True, found False"),
        ({"KeepAlive": True}, "KeepAlive: expected {'SuccessfulExit': False}, found True"),
        ({"ThrottleInterval": 1}, "ThrottleInterval: expected 30, found 1"),
        ({"ExitTimeOut": None}, "ExitTimeOut: expected 30, found None"),
        ({"ProcessType": "Background"}, "ProcessType: expected 'Interactive', found 'Background'"),
        ({"Umask": 0o022}, "Umask: expected 63, found 18"),
        # launchd tells the types of numbers apart; Python does not.
        ({"RunAtLoad": 1}, "RunAtLoad: expected True, found 1"),
        ({"Umask": 63.0}, "Umask: expected 63, found 63.0"),
        (
            {"KeepAlive": {"SuccessfulExit": 0}},
            "KeepAlive: expected {'SuccessfulExit': False}, found {'SuccessfulExit': 0}",
        ),
        ({"WatchPaths": ["/x"]}, "WatchPaths: a save would start a second process"),
        ({"LowPriorityIO": True}, "LowPriorityIO: loading the model would be throttled"),
        (
            {"StandardErrorPath": "~/x.log"},
            "StandardErrorPath: expected an absolute path, found '~/x.log'",
        ),
        ({"ProgramArguments": []}, "ProgramArguments: expected a list of texts"),
        (
            {"ProgramArguments": ["python3", "serve"]},
            "ProgramArguments: expected the interpreter's absolute path, found 'python3'",
        ),
        (
            {"ProgramArguments": ["/opt/homebrew/Cellar/python@3.12/3.12.4/bin/python3.12", "serve"]},
            "ProgramArguments: /opt/homebrew/Cellar/python@3.12/3.12.4/bin/python3.12 "
            "goes with Homebrew's next upgrade",
        ),
        (
            {"ProgramArguments": ["/p", "serve", "--model", "~/x"]},
            "ProgramArguments: expected an absolute path, found '~/x'",
        ),
        (
            {"ProgramArguments": ["/p", "serve", "--prompts=p.json"]},
            "ProgramArguments: --prompts: expected an absolute path, found 'p.json'",
        ),
        (
            {"EnvironmentVariables": {"HOME": "/h", "PATH": "bin:/usr/bin", "PYTHONUNBUFFERED": "1"}},
            "EnvironmentVariables: PATH: expected absolute paths, found 'bin:/usr/bin'",
        ),
        (
            {"ProgramArguments": ["/p", "serve", "--port", "²"]},
            "ProgramArguments: --port: expected 1 to 65535, found '²'",
        ),
        (
            {"ProgramArguments": ["/p", "serve", "--host=my host"]},
            "ProgramArguments: --host: expected a host, found 'my host'",
        ),
        (
            {"ProgramArguments": ["/p", "serve", "--port"]},
            "ProgramArguments: --port: expected 1 to 65535, found None",
        ),
        (
            {"ProgramArguments": ["/p", "serve", "a\rb"]},
            "ProgramArguments: 'a\\rb' has characters that a property list cannot hold",
        ),
        (
            {"EnvironmentVariables": {**VARIABLES, "WARMD_STORE_PATH": "kv"}},
            "EnvironmentVariables: WARMD_STORE_PATH: expected an absolute path, found 'kv'",
        ),
        (
            {"EnvironmentVariables": {**VARIABLES, "HF_HUB_CACHE": "./hub"}},
            "EnvironmentVariables: HF_HUB_CACHE: expected an absolute path, found './hub'",
        ),
        (
            {"EnvironmentVariables": {**VARIABLES, "WARMD_LOG_KEEP": 5}},
            "EnvironmentVariables: WARMD_LOG_KEEP: expected text, found 5",
        ),
        (
            {"EnvironmentVariables": {"PATH": "/bin", "PYTHONUNBUFFERED": "1"}},
            "EnvironmentVariables: HOME: expected an absolute path, found None",
        ),
    ],
)
def test_each_rule_is_told_in_one_line(change: dict[str, Any], fault: str) -> None:
    assert find_faults({**build_plist(AGENT), **change}, FILE) == (fault,)


def test_an_older_file_differs_in_the_keys_that_have_changed() -> None:
    old = build_plist(AGENT)
    del old["Umask"]
    old |= {"ThrottleInterval": 10, "Nice": 5}
    assert differing_keys(old, build_plist(AGENT)) == ("ThrottleInterval", "Umask", "Nice")
    assert differing_keys(build_plist(AGENT), build_plist(AGENT)) == ()


def nested(depth: int) -> bytes:
    """A plist with arrays in arrays."""
    inner = b"<array>" * depth + b"</array>" * depth
    command = b"<key>ProgramArguments</key><array><string>x</string></array>"
    return b'<?xml version="1.0"?><plist><dict>' + command + b"<key>X</key>" + inner + b"</dict></plist>"


def many_times() -> bytes:
    """A small binary plist whose lists each hold the next one twice."""
    objects = [b"\xa2" + bytes([number + 1, number + 1]) for number in range(40)] + [b"\xa0"]
    offsets, at = [], 8
    for item in objects:
        offsets.append(at)
        at += len(item)
    trailer = struct.pack(">6xBBQQQ", 1, 1, len(objects), 0, at)
    return b"bplist00" + b"".join(objects) + bytes(offsets) + trailer


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "not a property list (InvalidFileException)"),
        (b'<?xml version="1.0"?><plist><dict>', "not a property list (ExpatError)"),
        (b'<?xml version="1.0"?><plist><integer>x</integer></plist>', "not a property list (ValueError)"),
        (nested(30_000), "nested too deeply"),
        (many_times(), "nested too deeply"),
        (plistlib.dumps([1]), "expected ProgramArguments, a list of texts"),
        (plistlib.dumps({"ProgramArguments": "x"}), "expected ProgramArguments, a list of texts"),
    ],
)
def test_a_file_that_is_no_plist_of_ours_is_one_line(content: bytes, what: str, tmp_path: Path) -> None:
    path = tmp_path / "x.plist"
    path.write_bytes(content)
    with pytest.raises(UnreadablePlistError) as caught:
        read_plist(path)
    assert str(caught.value) == (
        f"{path}: {what}; `warmd uninstall` removes it, `warmd install --model M` writes it"
    )


@given(st.binary(max_size=60).map(lambda tail: b'<?xml version="1.0"?><plist>' + tail))
def test_no_content_breaks_the_reading(content: bytes) -> None:
    with TemporaryDirectory(prefix="warmd-test-") as folder:
        path = Path(folder) / "x.plist"
        path.write_bytes(content)
        with suppress(UnreadablePlistError):
            read_plist(path)


def test_what_serve_is_given_can_be_read_back() -> None:
    assert serve_arguments(build_plist(AGENT)) == AGENT.arguments
    for other in (["/bin/sh", "-c", "x"], ["/bin/other", "serve", "x"], ["serve", "x"]):
        assert serve_arguments({"ProgramArguments": other}) == ()
    assert serve_arguments({"ProgramArguments": ["/v/bin/warmd", "serve", "x"]}) == ("x",)


@pytest.mark.parametrize("kind", ["fifo", "folder", "large", "dangling"])
def test_what_is_no_file_is_not_waited_for(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.plist"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "large":
        path.write_bytes(b" " * (LARGEST + 1))
    else:
        path.symlink_to("nowhere")
    with pytest.raises(UnreadablePlistError):
        read_plist(path)
    with pytest.raises(FileNotFoundError):
        read_plist(tmp_path / "none.plist")


@given(st.dictionaries(st.sampled_from(["--a", "--b"]), st.text(max_size=5), min_size=1))
def test_what_breaks_no_rule_is_read_as_it_was_written(flags: dict[str, str]) -> None:
    arguments = tuple(word for flag in flags.items() for word in flag)
    plist = build_plist(replace(AGENT, arguments=arguments))
    if not find_faults(plist, FILE):
        assert plistlib.loads(to_bytes(plist)) == plist


def test_variables_that_no_process_can_have_are_none() -> None:
    variables = {"A": "1", "": "2", "B=C": "3", "D": "x\0", "E": 5}
    assert variables_of({"EnvironmentVariables": variables}) == {"A": "1", "E": "5"}
    assert variables_of({"EnvironmentVariables": 5}) == {}


def test_a_flag_is_read_in_both_forms_and_the_last_counts() -> None:
    assert flag_value(["--port", "1", "--port=2"], "--port") == "2"
    assert flag_value(["--port"], "--port") is None
    assert flag_value(["--ports", "1"], "--port") is None
