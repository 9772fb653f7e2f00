"""What installing decides, without installing anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from warmd.engines.model_folder import ModelError
from warmd.errors import UsageError
from warmd.launchd.install import (
    RootError,
    Wanted,
    comment_out,
    make_arguments,
    make_environment,
    refuse_root,
)

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


def test_variables_of_the_shell_beat_those_that_are_installed() -> None:
    shell = {"WARMD_STATE_DIR": "/t", "WARMD_LOG_FILE": "auto", "HF_TOKEN": "secret", "EDITOR": "vi"}
    assert make_environment(shell, OLD) == {
        "HF_HOME": "/hf",
        "WARMD_STATE_DIR": "/t",
        "WARMD_LOG_FILE": "auto",
    }
    assert make_environment({}, {"ProgramArguments": ["x"], "EnvironmentVariables": 5}) == {}


def test_paths_in_variables_are_named_from_the_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    found = make_environment({"WARMD_STATE_DIR": "s", "WARMD_CONFIG": "/w.toml", "WARMD_LOG_FILE": ""}, None)
    assert found == {"WARMD_STATE_DIR": f"{tmp_path}/s", "WARMD_CONFIG": "/w.toml", "WARMD_LOG_FILE": ""}


def test_a_sample_is_commented_out_but_for_its_sections() -> None:
    assert comment_out("# why\n[warm]\nx = 1\n\ny = 2\n") == "# why\n[warm]\n# x = 1\n\n# y = 2\n"


@pytest.mark.parametrize("model", ["a b", "a/b/c", "a--b", "-a", "a/b.git", "a..b", "x" * 97, "a/"])
def test_what_is_no_folder_and_cannot_be_a_name_is_refused(model: str) -> None:
    with pytest.raises(ModelError, match="no name of the Hugging Face hub"):
        make_arguments(Wanted(model), None)


@pytest.mark.parametrize("model", ["gpt2", "mlx-community/Qwen3-8B-4bit", "a_b/c.d"])
def test_what_can_be_a_name_passes(model: str) -> None:
    assert make_arguments(Wanted(model), None) == ("--model", model)
