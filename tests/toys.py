"""Toy chat templates, tokenizers and models, small enough to be made inside a test.

The tokenizers are trained here on a few synthetic sentences, so nothing is downloaded; they differ in what
may merge across a boundary, which is what the tests of prefixes are about. The models have random weights
that depend on the seed only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map
from mlx_lm.tokenizer_utils import TokenizerWrapper
from mlx_lm.utils import _get_classes
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{%- if tools %}{{- '<|im_start|>system\\n' }}"
    "{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}"
    "{{- '# Tools\\n' }}{%- for tool in tools %}{{- tool | tojson }}{{- '\\n' }}{%- endfor %}"
    "{{- '<|im_end|>\\n' }}"
    "{%- elif messages[0].role == 'system' %}"
    "{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}"
    "{%- for message in messages %}{%- if not (loop.first and message.role == 'system') %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)

MARKERS = (
    "<|im_start|>",
    "<|im_end|>",
    "<s>",
    "</s>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "[INST]",
    "[/INST]",
)

KINDS = ("gpt2", "llama3", "spm", "strip")
"""gpt2, llama3: byte-level BPE with those models' pre-tokenizers. spm: BPE over whole text with ``▁`` for a
space, so that merges cross words. strip: gpt2 with markers that swallow the whitespace around them."""

# Not GPT-2's letters but its rules: a contraction or one space joins the run after it, the last space of a
# run of whitespace stays with the next word. Digits: at most three to a piece.
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_SENTENCES = (
    "You are a careful reviewer of code. Answer briefly, and don't guess.",
    "system\n\nYou are a helpful assistant.\n\nuser\n\nWhat's the weather in Paris?\n\nassistant\n\n",
    "user\nhello there\nassistant\nHello! How can I help you today?\nuser\n  indented text\n",
    'def add(a, b):\n    return a + b\n\n\nif x == 10:\n\tprint("done")\r\n\r\n',
    "USER: Is it 12 or 123 or 1234567? ASSISTANT: It's 12.\n\nUSER:  two spaces\nASSISTANT:\n",
    '{"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}',
    "### Instruction:\nSummarise.\n\n### Response:\n\n### Instruction:\n",
    "model\nI'll do it; they've done it, we're here, he'd say.\n\n\n\nuser\n\n\n\n",
    "Привет, мир! 你好，世界。 مرحبا بالعالم 😀😀 cafe\u0301 na\u00efve\u00a0text",
    "---\n***\n```python\nx = 1\n```\n> quote\n- item\n1. one\n2. two\n<tool_response>\n</tool_response>\n",
)


def _pre_tokenizer(kind: str) -> Any:
    if kind == "llama3":
        split = pre_tokenizers.Split(Regex(_LLAMA3), "isolated")
        return pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _train_byte_level(kind: str) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = _pre_tokenizer(kind)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=640, initial_alphabet=alphabet, show_progress=False, max_token_length=12
    )
    tokenizer.train_from_iterator(_SENTENCES * 2, trainer)
    return tokenizer


def _train_spm() -> Tokenizer:
    spaces = normalizers.Replace(" ", "▁")
    draft = Tokenizer(models.BPE())
    draft.normalizer = spaces
    draft.train_from_iterator(
        _SENTENCES * 2, trainers.BpeTrainer(vocab_size=500, show_progress=False, max_token_length=8)
    )
    trained = json.loads(draft.to_str())["model"]
    vocab = {"<unk>": 0, **{f"<0x{byte:02X}>": byte + 1 for byte in range(256)}}
    vocab |= {token: len(vocab) + index for index, token in enumerate(trained["vocab"])}
    merges = [tuple(pair) for pair in trained["merges"]]
    tokenizer = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = spaces
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


@cache
def _trained(kind: str) -> str:
    if kind not in KINDS:
        raise ValueError(f"unknown kind of tokenizer: {kind}")
    tokenizer = _train_spm() if kind == "spm" else _train_byte_level(kind)
    return str(tokenizer.to_str())


def make_raw_tokenizer(kind: str = "gpt2", markers: Sequence[str] = MARKERS) -> Tokenizer:
    """A trained tokenizer with `markers` as special tokens; they strip whitespace around them for "strip"."""
    tokenizer = Tokenizer.from_str(_trained(kind))
    strips = kind == "strip"
    tokenizer.add_special_tokens(
        [AddedToken(m, lstrip=strips, rstrip=strips, normalized=False, special=True) for m in markers]
    )
    return tokenizer


def make_tokenizer(
    kind: str = "gpt2", template: str = CHATML, markers: Sequence[str] = MARKERS
) -> TokenizerWrapper:
    """A tokenizer as mlx-lm hands it to its server. Keep ``</s>`` among the markers: it is the end token."""
    fast = PreTrainedTokenizerFast(
        tokenizer_object=make_raw_tokenizer(kind, markers), bos_token="<s>", eos_token="</s>"
    )
    fast.chat_template = template
    return TokenizerWrapper(fast)


def make_tokenizer_files(
    directory: Path, *, kind: str = "gpt2", template: str = CHATML, markers: Sequence[str] = MARKERS
) -> int:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``; returns the vocabulary's size."""
    tokenizer = make_raw_tokenizer(kind, markers)
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": template,
        "model_max_length": 32768,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    return int(tokenizer.get_vocab_size())


_SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 32768,
    "rope_theta": 10000.0,
}

_ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": False},
    "gemma3_text": {"sliding_window": 16, "sliding_window_pattern": 2, "query_pre_attn_scalar": 32},
    "granitemoehybrid": {
        "layer_types": ["mamba", "attention"],
        "attention_bias": False,
        "embedding_multiplier": 1.0,
        "attention_multiplier": 0.18,
        "logits_scaling": 1.0,
        "residual_multiplier": 1.0,
        "mamba_n_heads": 4,
        "mamba_d_head": 32,
        "mamba_proj_bias": False,
        "mamba_d_state": 16,
        "mamba_d_conv": 4,
        "mamba_n_groups": 1,
        "mamba_conv_bias": True,
    },
}

ARCHITECTURES = tuple(_ARCHITECTURES)
"""llama: KVCache only. gemma3_text: RotatingKVCache (window 16) and KVCache. granitemoehybrid: ArraysCache
(Mamba-2) and KVCache."""


def make_model(
    directory: Path,
    *,
    architecture: str = "llama",
    template: str = CHATML,
    seed: int = 0,
    kind: str = "gpt2",
    markers: Sequence[str] = MARKERS,
    **config: Any,
) -> Path:
    """Write a tiny model that ``mlx_lm.load`` loads; `config` overrides its ``config.json``.

    The weights are larger than the usual initialisation, so that every token of the context matters for the
    answer: state that is only nearly right gives another answer.
    """
    directory.mkdir(parents=True, exist_ok=True)
    vocabulary = make_tokenizer_files(directory, kind=kind, template=template, markers=markers)
    end = make_raw_tokenizer(kind, markers).token_to_id("</s>")
    settings = {
        "model_type": architecture,
        **_SIZES,
        **_ARCHITECTURES[architecture],
        "vocab_size": vocabulary,
        "eos_token_id": end,
        **config,
    }
    (directory / "config.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")
    _save_weights(directory, settings, seed)
    return directory


def _save_weights(directory: Path, settings: dict[str, Any], seed: int) -> None:
    model_class, args_class = _get_classes(settings)
    mx.random.seed(seed)
    model = model_class(args_class.from_dict(settings))
    weights = tree_map(lambda array: array * 3 if array.ndim > 1 else array, model.parameters())
    mx.save_safetensors(str(directory / "model.safetensors"), dict(tree_flatten(weights)))
