"""The answer from state that was on disk is the cold answer: real tiny models of many architectures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache

from tests.architectures import CONFIGS, INEXACT, build
from tests.engines.mlx_lm.keeping import Start, make_weights
from tests.engines.mlx_lm.warming import answer, assert_same_answer, ids, make_provider, prefilled
from warmd.engines.mlx_lm.store import Quantising, WarmStore

TAIL = [7, 300, 21, 5]
PREFIX = ids(61)
STEP = 32


class Disk:
    """A folder, and servers that are started on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "kv"
        self.weights = make_weights(folder / "model")

    def start(
        self, model: Any, draft: Any = None, quantising: Quantising | None = None, **args: Any
    ) -> Start:
        """A run with nothing in memory, which checks what it loads."""
        provider = make_provider(model, draft, **args)
        return Start(self.folder, self.weights, provider, WarmStore(quantising=quantising), piece_bytes=8192)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """An empty folder."""
    return Disk(tmp_path)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_request_after_a_restart_gets_the_cold_answer(name: str, disk: Disk) -> None:
    model = build(name)
    first = disk.start(model)
    first.warm(PREFIX)
    first.write()
    second = disk.start(model)
    warmed = second.warm(PREFIX)
    assert second.events == []
    assert (warmed.new_tokens, warmed.disk_tokens, warmed.source) == (0, 61, "disk")
    found = second.store.match([*PREFIX, *TAIL])
    assert found is not None
    assert found.length == 61
    ends = range(9, 61, 9) if name in INEXACT else ()
    cold = (
        answer(model, TAIL, prefilled(model, PREFIX, ends))
        if name in INEXACT
        else answer(model, PREFIX + TAIL, make_prompt_cache(model))
    )
    assert_same_answer(cold, answer(model, TAIL, found.copy(len(TAIL))))


def generated(model: Any, tokens: list[int], cache: list[Any], bits: int) -> list[mx.array]:
    """The logits of four answer tokens, by mlx-lm's own generation with a quantised cache."""
    steps = generate_step(
        mx.array(tokens),
        model,
        stream=mx.default_stream(mx.default_device()),
        max_tokens=4,
        prompt_cache=cache,
        prefill_step_size=STEP,
        kv_bits=bits,
        kv_group_size=32,
        quantized_kv_start=0,
    )
    return [logits for _, logits in steps]


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("size", [STEP - 9, 2 * STEP, 2 * STEP + 11])
@pytest.mark.parametrize("name", ["qwen3", "granitemoehybrid", "llama4"])
def test_quantised_state_gives_the_cold_quantised_answer(name: str, size: int, bits: int, disk: Disk) -> None:
    model, prefix = build(name), ids(size)
    flags = {"kv_bits": bits, "prefill_step_size": STEP}
    first = disk.start(model, quantising=Quantising(STEP, 0), **flags)
    first.warm(prefix)
    first.write()
    second = disk.start(model, quantising=Quantising(STEP, 0), **flags)
    assert (second.warm(prefix).new_tokens, second.events) == (0, [])
    found = second.store.match([*prefix, *TAIL])
    assert found is not None
    cold = generated(model, prefix + TAIL, make_prompt_cache(model), bits)
    warm = generated(model, TAIL, found.copy(len(TAIL)), bits)
    for expected, logits in zip(cold, warm, strict=True):
        assert_same_answer(expected, logits)


def test_state_of_other_settings_is_not_used(disk: Disk) -> None:
    model = build("qwen3")
    first = disk.start(model)
    first.warm(PREFIX)
    first.write()
    second = disk.start(model, quantising=Quantising(STEP, 0), kv_bits=8, prefill_step_size=STEP)
    assert second.warm(PREFIX).disk_tokens == 0
    (rejected,) = second.told("store.rejected")
    assert rejected["reason"] == "it is of other cache_layout, kv_bits"


@pytest.mark.parametrize("draft", ["llama", "qwen3_next", "gemma3_text"])
@pytest.mark.parametrize("name", ["qwen3", "gemma3_text", "falcon_h1"])
def test_a_draft_model_s_state_is_on_disk_as_well(name: str, draft: str, disk: Disk) -> None:
    model, draft_model = build(name), build(draft, seed=1)
    first = disk.start(model, draft_model)
    first.warm(PREFIX)
    first.write()
    second = disk.start(model, draft_model)
    assert (second.warm(PREFIX).new_tokens, second.events) == (0, [])
    found = second.store.match([*PREFIX, *TAIL])
    assert found is not None
    cache, count = found.copy(len(TAIL)), len(make_prompt_cache(model))
    for part, own in ((model, cache[:count]), (draft_model, cache[count:])):
        cold = answer(part, PREFIX + TAIL, make_prompt_cache(part))
        assert_same_answer(cold, answer(part, TAIL, own))


# --- what a checksum does not see -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "qwen3_next", "falcon_h1"])
@pytest.mark.parametrize("bits", [None, 4])
def test_state_of_another_model_that_passes_for_this_one_is_found_out(
    name: str, bits: int | None, disk: Disk
) -> None:
    """The identity is the same here, as it would be if warmd had overlooked what differs."""
    flags = {"kv_bits": bits, "prefill_step_size": STEP} if bits else {}
    quantising = Quantising(STEP, 0) if bits else None
    first = disk.start(build(name, seed=1), quantising=quantising, **flags)
    first.warm(PREFIX)
    first.write()
    second = disk.start(build(name, seed=2), quantising=quantising, **flags)
    warmed = second.warm(PREFIX)
    assert (warmed.new_tokens, warmed.disk_tokens) == (61, 0)
    reasons = {rejected["reason"] for rejected in second.told("store.rejected")}
    assert reasons == {"what the model computes differs from it"}
    # What was computed instead takes its place.
    assert second.write() != []


def test_state_that_was_wrong_when_it_was_written_is_found_out(disk: Disk) -> None:
    model = build("llama")
    first = disk.start(model)
    first.warm(PREFIX)
    for tree in first.store._trees.values():
        for node in tree.nodes():
            keys, values = node.payload.rows[0]  # type: ignore[misc]
            node.payload.rows[0] = (keys, mx.concatenate([values[..., 1:, :], values[..., :1, :]], axis=-2))
    first.write()
    second = disk.start(model)
    assert second.warm(PREFIX).new_tokens == 61
    assert len(second.told("store.rejected")) >= 1


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2"])
@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_half_precision_is_no_reason_to_reject(name: str, dtype: mx.Dtype, disk: Disk) -> None:
    model = build(name)
    model.set_dtype(dtype)
    first = disk.start(model)
    first.warm(PREFIX)
    first.write()
    second = disk.start(model)
    assert (second.warm(PREFIX).disk_tokens, second.events) == (61, [])
