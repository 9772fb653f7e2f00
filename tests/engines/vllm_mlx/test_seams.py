"""What we build on in vllm-mlx is there, or a line says what is not."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.commands.terminal import warmd
from tests.serving.process import write
from warmd.engines.seams import find_missing
from warmd.engines.vllm_mlx import seams

IS_INSTALLED = find_spec("vllm_mlx") is not None


@pytest.mark.skipif(not IS_INSTALLED, reason="vllm-mlx is not installed (it needs mlx-lm below 0.32)")
@pytest.mark.filterwarnings("default")
def test_the_installed_vllm_mlx_has_every_seam() -> None:
    seams.check_seams()


def test_a_check_of_the_prompts_file_counts_tokens_beside_it_too(
    models: dict[str, Path], tmp_path: Path
) -> None:
    write(
        tmp_path / "prompts.json", [{"name": "a", "messages": [{"role": "system", "content": "Be brief."}]}]
    )
    found = warmd("check", "prompts.json", "--model", str(models["llama"]), "--json", cwd=tmp_path)
    (entry,) = json.loads(found.stdout)["entries"]
    assert entry["tokens"] > 0
    assert found.returncode == 0


@pytest.mark.skipif(IS_INSTALLED, reason="vllm-mlx is installed")
def test_where_there_is_no_vllm_mlx_a_line_says_how_to_get_it() -> None:
    with pytest.raises(seams.NotInstalledError, match="pip install vllm-mlx") as caught:
        seams.check_seams()
    assert caught.value.exit_code == 3


def test_what_is_missing_is_said_in_one_line() -> None:
    error = seams.VllmMlxNeedsError(find_missing((("vllm_gone.server:app", ()),)))
    assert str(error).startswith("--engine vllm-mlx needs vllm-mlx >=0.6,<0.7 (found ")
    assert str(error).endswith("missing: vllm_gone.server.app")
