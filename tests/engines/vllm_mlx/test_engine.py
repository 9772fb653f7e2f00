"""Which of vllm-mlx's engines nothing can be kept warm in, and why."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = [
    pytest.mark.skipif(
        find_spec("vllm_mlx") is None, reason="vllm-mlx is not installed (it needs mlx-lm below 0.32)"
    ),
    pytest.mark.filterwarnings("default"),
]


def test_the_reason_is_told_in_words_of_the_command_line() -> None:
    from vllm_mlx.engine.batched import BatchedEngine
    from vllm_mlx.engine.simple import SimpleEngine

    from warmd.engines.vllm_mlx.engine import unwarmable

    # A multimodal model takes packages of gigabytes: only what is looked at is here.
    assert unwarmable(SimpleNamespace(is_mllm=True)) == (
        "the model is multimodal: warmd keeps nothing warm in vllm-mlx's engine for those"
    )
    assert unwarmable(SimpleNamespace(is_mllm=False)) == "warmd does not know vllm-mlx's SimpleNamespace"
    assert unwarmable(SimpleEngine("model")) is None
    batched = BatchedEngine("model")
    batched._engine = SimpleNamespace(
        engine=SimpleNamespace(scheduler=SimpleNamespace(memory_aware_cache=None))
    )
    assert "leave out --disable-prefix-cache" in str(unwarmable(batched))


def test_the_files_of_a_model_tell_it_from_others_of_its_name(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from warmd.disk.identity import digest_of, weights_of
    from warmd.engines.vllm_mlx.engine import fingerprint_of

    folder = models["llama"]
    assert fingerprint_of(str(folder)) == digest_of({"model": weights_of(folder)})
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    assert fingerprint_of("owner/name") == ""
    snapshots = tmp_path / "models--owner--name" / "snapshots"
    snapshots.mkdir(parents=True)
    (snapshots / "0a").symlink_to(folder)
    assert fingerprint_of("owner/name") == fingerprint_of(str(folder))
