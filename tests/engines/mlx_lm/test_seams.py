import re

import pytest

from warmd.engines.mlx_lm import seams
from warmd.engines.seams import find_missing


def test_the_installed_mlx_lm_has_every_seam() -> None:
    seams.check_seams()


def test_the_installed_transformers_lets_us_ask_for_the_time_in_its_place() -> None:
    assert find_missing(seams.OPTIONAL_SEAMS) == []


def test_what_is_missing_is_said_in_one_line_with_the_version_found() -> None:
    with pytest.raises(seams.EngineNeedsError, match=re.escape("mlx_lm.server.run")) as caught:
        raise seams.EngineNeedsError(["mlx_lm.server.run"])
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)
