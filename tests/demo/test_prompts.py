"""The demo's sample prompts and the words it begins with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from warmd.demo import demo_request, ensure_demo_prompts, welcome
from warmd.demo.prompts import DemoPromptsError
from warmd.errors import WarmdError


def test_the_sample_is_written_with_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "prompts.json"
    assert ensure_demo_prompts(path)
    assert [path] == list(path.parent.iterdir())
    names = [entry["name"] for entry in json.loads(path.read_text())["prompts"]]
    assert names == ["code-reviewer", "shell-helper"]


def test_what_is_there_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "prompts.json"
    path.write_text("mine")
    assert not ensure_demo_prompts(path)
    assert path.read_text() == "mine"


def test_a_link_that_leads_nowhere_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "prompts.json"
    path.symlink_to(tmp_path / "gone")
    assert not ensure_demo_prompts(path)
    assert not path.exists()


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DemoPromptsError, match="cannot write the demo's prompts file"):
        ensure_demo_prompts(tmp_path / "file" / "prompts.json")


def test_the_request_begins_with_the_first_entry(tmp_path: Path) -> None:
    path = tmp_path / "prompts.json"
    ensure_demo_prompts(path)
    system = json.loads(path.read_text())["prompts"][0]["messages"]
    expected = {"messages": [*system, {"role": "user", "content": "Hi"}], "max_tokens": 60}
    assert expected == demo_request(path, "Hi")


def test_the_request_carries_tools_and_template_arguments(tmp_path: Path) -> None:
    path, tools = tmp_path / "prompts.json", [{"type": "function", "function": {"name": "get_time"}}]
    messages = [{"role": "system", "content": "Be brief."}]
    kwargs = {"enable_thinking": False}
    entry = {"messages": messages, "tools": tools, "chat_template_kwargs": kwargs}
    path.write_text(json.dumps([entry]))
    request = demo_request(path)
    assert (tools, kwargs) == (request["tools"], request["chat_template_kwargs"])


def test_a_file_without_entries_has_no_request(tmp_path: Path) -> None:
    path = tmp_path / "prompts.json"
    path.write_text("[]")
    with pytest.raises(WarmdError, match="has no entry"):
        demo_request(path)


def test_the_command_of_the_welcome_prints_the_request(tmp_path: Path) -> None:
    path = tmp_path / "a folder" / "prompts.json"
    ensure_demo_prompts(path)
    text = welcome("127.0.0.1", 8080, Path("/models/Smol"), path)
    command = text.partition("-m warmd.demo")[2].partition("|")[0]
    line = f"{sys.executable} -m warmd.demo {command}"
    printed = subprocess.run(line, shell=True, capture_output=True, check=True).stdout
    assert demo_request(path) == json.loads(printed)


@pytest.mark.parametrize(
    ("host", "shown"),
    [("localhost", "localhost"), ("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("::1", "[::1]")],
)
def test_the_welcome_names_an_address_that_can_be_called(host: str, shown: str) -> None:
    text = welcome(host, 81, Path("/m"), Path("/p"))
    assert f"http://{shown}:81/v1/chat/completions" in text
