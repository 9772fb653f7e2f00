"""Which interpreter is named, and which folders macOS keeps for itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmd.launchd.places import (
    ThrowawayPythonError,
    is_versioned,
    stable_python,
    versioned_base,
)
from warmd.launchd.protected import protected_by

HOME = Path("/Users/me")


def test_a_virtual_environment_stays_as_it_is(tmp_path: Path) -> None:
    assert stable_python(f"{tmp_path}/venv/bin/python") == tmp_path / "venv/bin/python"


@pytest.mark.parametrize(
    "rest",
    ["bin/python3.12", "Frameworks/Python.framework/Versions/3.12/bin/python3.12", "libexec/bin/python"],
)
def test_homebrews_own_is_named_by_the_link_that_follows_upgrades(rest: str, tmp_path: Path) -> None:
    real = tmp_path / "Cellar/python@3.12/3.12.4_1" / rest
    real.parent.mkdir(parents=True)
    real.touch()
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt/python@3.12").symlink_to("../Cellar/python@3.12/3.12.4_1")
    found = stable_python(str(real))
    assert found == tmp_path / "opt/python@3.12" / rest
    assert is_versioned(str(real))
    assert not is_versioned(str(found))


def test_without_such_a_link_it_is_what_it_is(tmp_path: Path) -> None:
    real = tmp_path / "Cellar/python@3.12/3.12.4/bin/python3"
    assert stable_python(str(real)) == real


def test_an_environment_that_is_tied_to_a_version_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "venv/bin"
    folder.mkdir(parents=True)
    (folder / "python").symlink_to("python3.12")
    assert versioned_base(folder / "python") is None
    (folder / "python3.12").symlink_to("/opt/homebrew/opt/python@3.12/bin/python3.12")
    assert versioned_base(folder / "python") is None
    (folder / "python3.12").unlink()
    (folder / "python3.12").symlink_to("/opt/homebrew/Cellar/python@3.12/3.12.4/bin/python3.12")
    assert versioned_base(folder / "python") == "/opt/homebrew/Cellar/python@3.12/3.12.4/bin/python3.12"
    (folder / "loop").symlink_to("loop")
    assert versioned_base(folder / "loop") is None


def test_what_is_in_a_cache_is_refused() -> None:
    for folder, where in (
        ("/Users/me/.cache/uv/archive-v0/x", "uv's cache"),
        ("/Users/me/.local/pipx/.cache/5f3/bin", "pipx's cache"),
        ("/Users/me/Library/Caches/pipx/5f3/bin", "pipx's cache"),
        ("/private/tmp/venv/bin", "a temporary folder"),
        ("/var/folders/zz/T/venv/bin", "a temporary folder"),
    ):
        with pytest.raises(ThrowawayPythonError, match=f"^{folder}/python is in {where} and will be gone"):
            stable_python(f"{folder}/python")
    assert stable_python("/Users/me/.local/pipx/venvs/warmd/bin/python")


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/Users/me/Documents/p.json", "the Documents folder"),
        ("/Users/me/Desktop", "the Desktop folder"),
        ("/Users/me/Library/Mobile Documents/com~apple~CloudDocs/p.json", "iCloud Drive"),
        ("/Volumes/Disk/p.json", "a removable or network volume"),
        ("/Users/me/.config/warmd/p.json", None),
        ("/Users/me/Documents2/p.json", None),
    ],
)
def test_protected_folders(path: str, place: str | None) -> None:
    assert protected_by(Path(path), HOME) == place


def test_a_link_into_a_protected_folder_counts(tmp_path: Path) -> None:
    (tmp_path / "Desktop").mkdir()
    (tmp_path / "p.json").symlink_to("Desktop/p.json")
    assert protected_by(tmp_path / "p.json", tmp_path) == "the Desktop folder"
