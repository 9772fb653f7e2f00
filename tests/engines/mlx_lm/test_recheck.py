"""The check of what was loaded: in steps that take no long time each."""

from __future__ import annotations

import mlx.core as mx
import pytest

from tests.architectures import build
from tests.engines.mlx_lm.warming import ids, make_provider, prefilled
from warmd.engines.mlx_lm import layers
from warmd.engines.mlx_lm.forms import forms_of
from warmd.engines.mlx_lm.measure import trace
from warmd.engines.mlx_lm.recheck import recheck
from warmd.radix import pack

SIZE = 3000


@pytest.mark.parametrize("begun", [0, 1000], ids=["all of it", "on top of what is held"])
def test_no_step_puts_more_than_one_part_together(begun: int) -> None:
    model, tokens = build("llama"), ids(SIZE)
    provider = make_provider(model)
    form = forms_of(trace(model), provider.cli_args)[False]
    cache = prefilled(model, tokens)
    parts = list(layers.parts(cache))
    rows: list[layers.Rows | None] = [layers.cut_rows(part, begun, SIZE) for part in parts]
    base = prefilled(model, tokens[:begun]) if begun else None
    mx.eval(layers.arrays_of(rows))
    part_bytes = layers.nbytes([layers.cut_rows(parts[0], 0, SIZE)])
    del cache, parts
    mx.clear_cache()
    before, grown = mx.get_active_memory(), []
    answers = []
    for answer in recheck(provider, form, [(begun, SIZE, rows)], pack(tokens), base):
        answers.append(answer)
        after = mx.get_active_memory()
        grown.append(after - before)
        before = after
    assert answers == [None] * (len(form.kinds) + 4) + [True]
    assert max(grown) < 1.2 * part_bytes
