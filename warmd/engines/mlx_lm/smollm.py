"""Turns SmolLM2's GGUF file into a model folder that mlx-lm loads.

The weights stay quantised: llama.cpp's Q4_1 and Q8_0 blocks are mlx's affine quantisation with groups of 32,
and `mlx.core.load` unpacks them as such. Three things are left to do: names, the order of the rows of q and
k, and the tokenizer, which the GGUF carries as metadata.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

GROUP_SIZE = 32
"""Weights per scale in every block format of llama.cpp that mlx reads."""

_BITS = 4
_CONTROL = 3  # llama.cpp's LLAMA_TOKEN_TYPE_CONTROL

_MODULES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

Metadata = dict[str, Any]
Weights = dict[str, mx.array]


def build_model_folder(gguf: Path, folder: Path) -> None:
    """Write everything `mlx_lm.load` needs into a folder that exists.

    Args:
        gguf: A llama-architecture GGUF with a byte-level BPE tokenizer of the kind "smollm".
        folder: Receives ``config.json``, ``model.safetensors``, ``tokenizer.json`` and
            ``tokenizer_config.json``.
    """
    # The GPU cannot read a file, and loading must not depend on which device is the default.
    # The annotations of `mx.load` do not tell that asking for the metadata makes it return a pair of dicts.
    loaded, metadata = cast(tuple[Weights, Metadata], mx.load(str(gguf), return_metadata=True, stream=mx.cpu))
    weights = convert_weights(loaded, metadata)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    _write_json(folder / "config.json", make_config(weights, metadata))
    make_tokenizer(metadata).save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", make_tokenizer_config(metadata))


def convert_weights(loaded: Weights, metadata: Metadata) -> Weights:
    """Rename the tensors, put q's and k's rows in mlx's order, and give all floats one type."""
    dtype = _float_type()
    heads = {
        "q_proj": int(metadata["llama.attention.head_count"].item()),
        "k_proj": int(metadata["llama.attention.head_count_kv"].item()),
    }
    weights: Weights = {}
    for name, array in loaded.items():
        module, _, kind = _rename(name).rpartition(".")
        projection = module.rpartition(".")[2]
        if projection in heads:
            array = _undo_rotary_permutation(array, heads[projection])
        weights[f"{module}.{kind}"] = array if array.dtype == mx.uint32 else array.astype(dtype)
    return weights


def _float_type() -> mx.Dtype:
    """mlx's quantised matmul on the CPU is about 50 times faster in float32; a GPU wants half the bytes."""
    return mx.float16 if mx.default_device().type == mx.gpu else mx.float32


def _rename(name: str) -> str:
    *layer, module, kind = name.split(".")
    where = f"model.layers.{layer[1]}." if layer else ""
    return f"{where}{_MODULES[module]}.{kind}"


def _undo_rotary_permutation(array: mx.array, heads: int) -> mx.array:
    """llama.cpp pairs neighbouring rows of a head for its rotary embedding, mlx-lm pairs the two halves."""
    rows, columns = array.shape
    pairs = array.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def make_config(weights: Weights, metadata: Metadata) -> dict[str, Any]:
    """The ``config.json`` of a Llama model whose modules are quantised as the weights are."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": _number(metadata, "llama.embedding_length"),
        "intermediate_size": _number(metadata, "llama.feed_forward_length"),
        "num_hidden_layers": _number(metadata, "llama.block_count"),
        "num_attention_heads": _number(metadata, "llama.attention.head_count"),
        "num_key_value_heads": _number(metadata, "llama.attention.head_count_kv"),
        "max_position_embeddings": _number(metadata, "llama.context_length"),
        "vocab_size": _number(metadata, "llama.vocab_size"),
        "rms_norm_eps": metadata["llama.attention.layer_norm_rms_epsilon"].item(),
        "rope_theta": metadata["llama.rope.freq_base"].item(),
        "tie_word_embeddings": True,
        "bos_token_id": _number(metadata, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": _number(metadata, "tokenizer.ggml.eos_token_id"),
        "quantization": {"group_size": GROUP_SIZE, "bits": _BITS, **_other_widths(weights)},
    }


def _number(metadata: Metadata, key: str) -> int:
    return int(metadata[key].item())


def _other_widths(weights: Weights) -> dict[str, dict[str, int]]:
    """The modules that are not 4 bits wide, as mlx-lm wants them named in the configuration."""
    widths = {}
    for name, scales in weights.items():
        if name.endswith(".scales"):
            module = name.removesuffix(".scales")
            bits = 32 * weights[f"{module}.weight"].shape[-1] // (GROUP_SIZE * scales.shape[-1])
            if bits != _BITS:
                widths[module] = {"group_size": GROUP_SIZE, "bits": bits}
    return widths


def make_tokenizer(metadata: Metadata) -> Tokenizer:
    """The byte-level BPE tokenizer; llama.cpp's kind "smollm" splits digits singly."""
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = metadata["tokenizer.ggml.token_type"].tolist()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control])
    return tokenizer


def make_tokenizer_config(metadata: Metadata) -> dict[str, Any]:
    """The ``tokenizer_config.json``: special tokens and the chat template."""
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    special = {
        f"{name}_token": tokens[_number(metadata, f"tokenizer.ggml.{key}_token_id")]
        for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown"))
    }
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **special,
        "chat_template": metadata["tokenizer.chat_template"],
        "model_max_length": _number(metadata, "llama.context_length"),
        "clean_up_tokenization_spaces": False,
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False), encoding="utf-8")
