"""vllm-mlx's cache is written to disk whole or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from warmd.engines.vllm_mlx.saving import load_whole, save_whole, saved_whole


def save(cache: Any, folder: str) -> bool:
    """As vllm-mlx does: a folder for its version, file after file, nothing where there is nothing."""
    for number, text in enumerate(cache):
        place = Path(folder) / "v1" / f"entry_{number}"
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
    return bool(cache)


def files(folder: Path) -> dict[str, str]:
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def test_what_is_saved_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    assert save_whole(["a", "b"], str(folder), save)
    (folder / "v0").mkdir()
    (folder / "v0" / "kept").write_text("of another version")
    assert save_whole(["c"], str(folder), save)
    assert files(folder) == {"v1/entry_0": "c", "v0/kept": "of another version"}
    assert sorted(path.name for path in folder.iterdir()) == ["v0", "v1"]


def test_where_there_is_nothing_to_save_the_old_stays(tmp_path: Path) -> None:
    save_whole(["a"], str(tmp_path), save)
    assert not save_whole([], str(tmp_path), save)
    assert files(tmp_path) == {"v1/entry_0": "a"}


def test_a_save_that_breaks_off_changes_nothing_and_leaves_nothing_to_the_next_one(tmp_path: Path) -> None:
    def broken(cache: Any, folder: str) -> bool:
        save(cache, folder)
        raise KeyboardInterrupt

    save_whole(["a", "b"], str(tmp_path), save)
    with pytest.raises(KeyboardInterrupt):
        save_whole(["x"], str(tmp_path), broken)
    assert (tmp_path / "v1" / "entry_0").read_text() == "a"
    save_whole(["c"], str(tmp_path), save)
    assert files(tmp_path) == {"v1/entry_0": "c"}


def load(cache: Any, folder: str) -> int:
    """As vllm-mlx does: what is in the folder for its version."""
    cache += [path.read_text() for path in sorted((Path(folder) / "v1").glob("entry_*"))]
    return len(cache)


KILLED = """
import sys, os, pathlib
from tests.engines.vllm_mlx.test_saving import save
from warmd.engines.vllm_mlx.saving import save_whole
moves, most = 0, int(sys.argv[2])
def audit(event, arguments):
    global moves
    if event in ("os.rename", "shutil.rmtree", "os.rmdir", "os.remove", "os.mkdir"):
        moves += 1
        if moves > most:
            os._exit(9)
sys.addaudithook(audit)
save_whole(["new a", "new b"], sys.argv[1], save)
"""


def test_wherever_a_save_is_killed_one_whole_copy_is_found_at_the_next_start(tmp_path: Path) -> None:
    seen, step, code = set(), 0, 9
    while code == 9:
        folder = str(tmp_path / str(step))
        save_whole(["old a", "old b"], folder, save)
        code = subprocess.run([sys.executable, "-c", KILLED, folder, str(step)]).returncode
        found: list[str] = []
        assert load_whole(found, folder, load) == 2
        assert found in (["old a", "old b"], ["new a", "new b"])
        seen.add(found[0])
        # And the next save is as good as any.
        assert save_whole(["c"], folder, save)
        assert files(Path(folder)) == {"v1/entry_0": "c"}
        step += 1
    assert (code, seen) == (0, {"old a", "new a"})


def test_where_nothing_was_saved_nothing_is_loaded(tmp_path: Path) -> None:
    assert load_whole([], str(tmp_path / "none"), load) == 0
    assert list(tmp_path.iterdir()) == []


def test_it_is_so_within_the_block(tmp_path: Path) -> None:
    cache_type = SimpleNamespace(save_to_disk=save, load_from_disk=load)
    with saved_whole(cache_type):
        assert cache_type.save_to_disk(["a"], str(tmp_path))
        assert cache_type.load_from_disk([], str(tmp_path)) == 1
        assert cache_type.save_to_disk is not save
    assert (cache_type.save_to_disk, cache_type.load_from_disk) == (save, load)
    assert files(tmp_path) == {"v1/entry_0": "a"}
