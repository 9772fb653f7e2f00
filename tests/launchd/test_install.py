"""What installing decides, without installing anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from warmd.cli import make_parser
from warmd.engines.model_folder import ModelError
from warmd.errors import UsageError
from warmd.launchd.arguments import Wanted, make_arguments
from warmd.launchd.install import RootError, comment_out, refuse_root
from warmd.launchd.server_flags import OWN, check_flags
from warmd.launchd.variables import PATH_VARIABLES, as_service, check_from_root, ignored, make_environment

OLD: dict[str, Any] = {
    "ProgramArguments": ["/p", "-m", "warmd", "serve", "--model", "a/b", "--port=1", "--prompts", "/p.json"],
    "EnvironmentVariables": {"HOME": "/old", "PATH": "/bin", "HF_HOME": "/hf", "WARMD_STATE_DIR": "/s"},
}


def test_only_root_on_a_mac_is_refused() -> None:
    refuse_root(501, "darwin")
    refuse_root(0, "linux")
    with pytest.raises(
        RootError, match=r"^run this as yourself, without sudo: a LaunchAgent belongs to a user"
    ):
        refuse_root(0, "darwin")


def test_what_is_installed_stays_but_for_what_is_given() -> None:
    assert make_arguments(Wanted(None), OLD) == ("--model", "a/b", "--port=1", "--prompts", "/p.json")
    assert make_arguments(Wanted(None, "/q.json", 2), OLD) == (
        *("--model", "a/b"),
        *("--prompts", "/q.json", "--port", "2"),
    )


def test_a_new_model_brings_its_flags_anew() -> None:
    assert make_arguments(Wanted("c/d", flags=("--kv-bits", "4")), OLD) == (
        "--model",
        "c/d",
        "--kv-bits",
        "4",
    )
    with pytest.raises(UsageError, match=r"^flags for the server go with --model M: "):
        make_arguments(Wanted(None, flags=("--kv-bits", "4")), OLD)


def test_variables_are_those_of_the_shell_and_what_was_written_by_hand() -> None:
    shell = {"WARMD_STATE_DIR": "/t", "WARMD_LOG_FILE": "auto", "HF_TOKEN": "secret", "EDITOR": "vi"}
    before = {"HOME": "/old", "PATH": "/bin", "HF_HOME": "/hf", "WARMD_STORE_PATH": "/kv", "MLX_X": "1"}
    assert make_environment(shell, before) == {
        "MLX_X": "1",
        "WARMD_STATE_DIR": "/t",
        "WARMD_LOG_FILE": "auto",
    }
    assert make_environment({}, {}) == {}


def test_paths_in_variables_are_named_from_the_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/h")
    paths = dict.fromkeys(PATH_VARIABLES, "s")
    assert len(paths) == 9
    # The standard has these absolute, and whatever reads them passes over what is not.
    xdg = ("XDG_STATE_HOME", "XDG_CACHE_HOME")
    assert ignored(paths) == xdg
    assert make_environment(paths, {}) == {name: f"{tmp_path}/s" for name in paths if name not in xdg}
    assert make_environment(dict.fromkeys(xdg, "/x"), {}) == dict.fromkeys(xdg, "/x")
    others = {
        "WARMD_CONFIG": "/w.toml",
        "WARMD_STORE_PATH": "~/kv",
        "WARMD_LOG_FILE": "",
        "WARMD_LOG_KEEP": "3",
    }
    assert make_environment(others, {}) == {**others, "WARMD_STORE_PATH": "/h/kv"}


@pytest.mark.parametrize("name", [name for name in PATH_VARIABLES if not name.startswith("XDG")])
def test_a_blank_is_no_path(name: str) -> None:
    with pytest.raises(UsageError, match=rf"^{name}: expected a path, found ' '$"):
        make_environment({name: " "}, {})


def test_a_word_is_taken_for_a_path_only_where_it_is_one() -> None:
    words = {"WARMD_STATE_DIR": "auto", "WARMD_STORE_PATH": "auto", "WARMD_LOG_FILE": "auto"}
    # The settings say which of them knows it.
    assert make_environment(words, {}) == words
    assert make_environment({"HF_HOME": "auto"}, {}) == {"HF_HOME": f"{Path.cwd()}/auto"}


@pytest.mark.parametrize("name", ["WARMD_STATE_DIR", "WARMD_STORE_PATH", "WARMD_CONFIG"])
def test_folders_that_depend_on_where_one_is_are_not_purged(name: str) -> None:
    check_from_root({name: "/s", "WARMD_LOG_FILE": "auto", "HF_HOME": "hub"})
    check_from_root({name: "~/s"})
    with pytest.raises(
        UsageError, match=f"^the LaunchAgent's {name}: expected an absolute path, found 's', "
    ):
        check_from_root({name: "s"})


def test_a_command_takes_over_the_variables_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARMD_STATE_DIR", "/shell")
    monkeypatch.setenv("WARMD_LOG_KEEP", "3")
    before = dict(os.environ)
    with as_service({"WARMD_STATE_DIR": "/service", "PATH": "/p", "MLX_X": "1"}):
        ours = {name: value for name, value in os.environ.items() if name.startswith("WARMD_")}
        others = {name: value for name, value in os.environ.items() if name in ("PATH", "MLX_X")}
    assert (ours, others) == ({"WARMD_STATE_DIR": "/service"}, {"PATH": before["PATH"]})
    assert dict(os.environ) == before
    with as_service(None):
        assert dict(os.environ) == before


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (("--adapter-path", ""), "--adapter-path: expected a value, found ''"),
        (("--draft-model",), "--draft-model: expected a value, found none"),
        (("--host",), "--host: expected a value, found none"),
        (("--host", "my host"), "--host: expected a host's name or address, found 'my host'"),
        (("--port",), "--port goes before --"),
        (("--model=x",), "--model goes before --"),
        (("--demo",), "--demo is not for a service: it is for a first look in a terminal"),
        (("-h",), "-h is not for a service: it shows a text and ends"),
        (("--engine", "vllm-mlx"), "--engine is not for a service: the service runs mlx-lm's server"),
        (("--por", "19021"), "--por: expected the whole name of a flag: --port"),
        (("--mod=x",), "--mod: expected the whole name of a flag: --model"),
        (("--eng", "vllm-mlx"), "--eng: expected the whole name of a flag: --engine"),
        (("--he",), "--he: expected the whole name of a flag: --help"),
        (("--hos", "my host"), "--hos: expected the whole name of a flag: --host"),
        (("--adapter", "/none"), "--adapter: expected the whole name of a flag: --adapter-path"),
        (("--dem",), "--dem: expected the whole name of a flag: --demo"),
        (("--top", "1"), "--top: expected the whole name of a flag: --top-k or --top-p"),
        (("--bogus",), "--bogus: mlx-lm's server has no such flag"),
        (
            ("--max-token", "5"),
            "--max-token: expected the whole name of a flag: --max-tokens",
        ),
        (
            ("--maxtokens", "5"),
            "--maxtokens: mlx-lm's server has no such flag; the nearest known one is --max-tokens",
        ),
        (("-p", "5"), "-p: mlx-lm's server has no such flag"),
        (("--max-tokens",), "--max-tokens: expected a value, found none"),
        (("--max-tokens", "--pipeline"), "--max-tokens: expected a value, found '--pipeline'"),
        (("--pipeline", "5"), "unexpected argument '5'"),
        (("--kv-bits", "4", "--"), "unexpected argument '--': one is enough"),
    ],
)
def test_flags_that_no_service_can_have_are_one_line(flags: tuple[str, ...], error: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_arguments(Wanted("a/b", flags=flags), None)
    assert str(caught.value) == error


def test_flags_that_were_installed_are_looked_at_as_well() -> None:
    old = {"ProgramArguments": [*OLD["ProgramArguments"], "--max-tok", "5"]}
    with pytest.raises(UsageError, match=r"^--max-tok: expected the whole name of a flag: --max-tokens$"):
        make_arguments(Wanted(None), old)


def test_what_is_a_flag_or_value_of_the_server_passes() -> None:
    flags = ("--temp", "-1", "--pipeline", "--max-tokens=5", "--log-level", "DEBUG", "--chat-template", "")
    assert make_arguments(Wanted("a/b", flags=flags), None) == ("--model", "a/b", *flags)


def test_our_own_flags_are_those_of_the_parser() -> None:
    parser = make_parser(["serve"]).parse_args(["serve", "--model", "x"]).parser
    own = {name: action.nargs != 0 for action in parser._actions for name in action.option_strings}
    assert {**own, "--port": True} == dict(OWN)


def test_without_an_engine_only_what_begins_like_our_own_flags_is_seen() -> None:
    check_flags(["--bogus", "x", "--model", "m"], None)
    with pytest.raises(UsageError, match=r"^--mod: "):
        check_flags(["--mod", "x"], None)


def test_the_servers_flags_are_read_without_importing_it() -> None:
    script = (
        "import sys\nfrom warmd.launchd.server_flags import server_flags\nfound = server_flags()\n"
        "print(found['--host'], found['--pipeline'], 'mlx_lm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True False False\n"


@pytest.mark.parametrize("wanted", [Wanted(""), Wanted("a/b", " ")])
def test_nothing_is_neither_a_model_nor_a_file(wanted: Wanted) -> None:
    with pytest.raises(UsageError, match=r"^--(model|prompts): expected a (model folder|path)"):
        make_arguments(wanted, None)


def test_an_adapter_must_be_there() -> None:
    with pytest.raises(ModelError, match="expected a folder with an adapter"):
        make_arguments(Wanted("a/b", flags=("--adapter-path", "/no/where")), None)


def test_a_sample_is_commented_out_but_for_its_sections() -> None:
    assert comment_out("# why\n[warm]\nx = 1\n\ny = 2\n") == "# why\n[warm]\n# x = 1\n\n# y = 2\n"


@pytest.mark.parametrize("model", ["a b", "a/b/c", "a--b", "-a", "a/b.git", "a..b", "x" * 97, "a/"])
def test_what_is_no_folder_and_cannot_be_a_name_is_refused(model: str) -> None:
    with pytest.raises(ModelError, match="no name of the Hugging Face hub"):
        make_arguments(Wanted(model), None)


@pytest.mark.parametrize("model", ["gpt2", "mlx-community/Qwen3-8B-4bit", "a_b/c.d"])
def test_what_can_be_a_name_passes(model: str) -> None:
    assert make_arguments(Wanted(model), None) == ("--model", model)
