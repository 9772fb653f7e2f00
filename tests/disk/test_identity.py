"""What a model's files are known by."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from warmd.disk.identity import differences, digest_of, weights_of


def test_every_byte_of_a_small_file_counts(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    content = bytes(100_000)
    weights.write_bytes(content)
    before = weights_of(tmp_path)
    for place in (0, 50_000, 99_999):
        changed = bytearray(content)
        changed[place] ^= 1
        weights.write_bytes(changed)
        assert before != weights_of(tmp_path)
    weights.write_bytes(content)
    assert before == weights_of(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["config.json", "adapter_config.json", "modeling.py", "model-2.safetensors", "adapters.safetensors"],
)
def test_all_that_makes_a_model_counts_and_nothing_else(tmp_path: Path, name: str) -> None:
    before = weights_of(tmp_path)
    # macOS leaves the second one on disks of others, and people anything.
    for other in ("README.md", "._model.safetensors", "optimizer.safetensors", "._modeling.py"):
        (tmp_path / other).write_text("x")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "gone.py").symlink_to("nowhere")
    assert before == weights_of(tmp_path)
    (tmp_path / name).write_text("x")
    assert before != weights_of(tmp_path)


def test_a_large_file_is_known_by_a_sample_in_no_time(tmp_path: Path) -> None:
    weights, size = tmp_path / "model.safetensors", 4 << 30
    with weights.open("wb") as file:
        # Nothing is allocated for a hole.
        file.write((1000).to_bytes(8, "little"))
        file.truncate(size)
    began = time.thread_time()
    before = weights_of(tmp_path)
    assert time.thread_time() - began < 5
    for place in (5, 900, size - 1):
        with weights.open("r+b") as file:
            file.seek(place)
            file.write(b"x")
        assert before != (before := weights_of(tmp_path))
    with weights.open("r+b") as file:
        file.truncate(size - 1)
    assert before != weights_of(tmp_path)


def test_what_differs_is_told_by_name() -> None:
    one = {"mlx": "0.32", "device": "cpu", "draft_model": None}
    other = {"mlx": "0.33", "device": "cpu", "adapter": []}
    assert differences(one, other) == ["adapter", "mlx"]
    assert digest_of(one) != digest_of(other)
    assert digest_of(one) == digest_of(dict(reversed(one.items())))
