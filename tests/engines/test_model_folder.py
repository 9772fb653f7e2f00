"""What is told of a model before anything slow begins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants

from tests.commands.terminal import make_environment
from tests.patience import PATIENCE
from warmd.engines.model_folder import NOT_HERE, ModelError, check_model_is_here

SERVE = """
import sys
from warmd.cli import main
code = main(["serve", "--model", sys.argv[1]])
sys.exit(f"{code} {sorted({'mlx', 'mlx_lm', 'transformers'} & set(sys.modules))}")
"""


@pytest.mark.parametrize("model", ["no/such-model", "/no/such-folder"])
def test_a_model_that_is_not_there_is_told_without_what_takes_seconds_to_import(
    model: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVE, model],
        env=make_environment(tmp_path, WARMD_STATE_DIR=str(tmp_path / "s")),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    *told, last = done.stderr.splitlines()
    assert (len(told), last) == (1, "3 []")
    assert f"cannot load the model '{model}': " in told[0]


@pytest.mark.parametrize("is_offline", [True, False])
def test_a_name_that_is_not_in_the_cache_is_wrong_only_where_nothing_is_downloaded(
    is_offline: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", is_offline)
    (tmp_path / "models--a--here" / "snapshots").mkdir(parents=True)
    check_model_is_here("a/here")
    if not is_offline:
        check_model_is_here("a/elsewhere")
        return
    with pytest.raises(ModelError) as raised:
        check_model_is_here("a/elsewhere")
    expected = f"cannot load the model 'a/elsewhere': {NOT_HERE} (HF_HUB_OFFLINE is set)"
    assert str(raised.value) == expected


def test_a_name_of_another_hub_is_left_to_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("MLXLM_USE_MODELSCOPE", "True")
    check_model_is_here("a/b")
