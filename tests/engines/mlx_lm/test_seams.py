import importlib.abc
import re
import sys

import pytest

from warmd.engines.mlx_lm import seams
from warmd.engines.seams import find_missing


def test_the_installed_mlx_lm_has_every_seam() -> None:
    seams.check_seams()


def test_the_installed_transformers_lets_us_ask_for_the_time_in_its_place() -> None:
    assert find_missing(seams.OPTIONAL_SEAMS) == []


def test_an_engine_that_cannot_be_imported_is_told_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, path: object, target: object = None) -> None:
            if name == "mlx_lm.server":
                raise ImportError("dlopen(libmlx.dylib):\n  Library not loaded")

    monkeypatch.delitem(sys.modules, "mlx_lm.server", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    with pytest.raises(seams.EngineImportError) as caught:
        seams.check_seams()
    assert str(caught.value) == (
        f"the embedded engine, mlx-lm {seams.TESTED}, cannot be imported: "
        "dlopen(libmlx.dylib): Library not loaded"
    )
    assert caught.value.exit_code == 3


def test_what_is_missing_is_said_in_one_line_with_the_version_found() -> None:
    with pytest.raises(seams.EngineNeedsError, match=re.escape("mlx_lm.server.run")) as caught:
        raise seams.EngineNeedsError(["mlx_lm.server.run"])
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)
