"""A tiny random-weight configuration for every model type that mlx-lm can build.

What a cache class does shows only in a model that uses it, and mlx-lm's models mix their caches in many ways.
Each model here is made in memory within milliseconds, and each has every kind of layer of its architecture.
"""

from __future__ import annotations

import copy
import pkgutil
from importlib import import_module
from typing import Any

import mlx.core as mx
import mlx_lm.models
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.utils import MODEL_REMAPPING, _get_classes

VOCABULARY = 320
WINDOW = 16
"""Tokens that a sliding window, or an attention chunk, holds."""

_FULL, _SLIDING = "full_attention", "sliding_attention"

# Model classes take from a configuration what they know, so that one base serves them all.
_BASE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "rms_norm_eps": 1e-5,
    "layer_norm_eps": 1e-5,
    "layer_norm_epsilon": 1e-5,
    "norm_eps": 1e-5,
    "norm_epsilon": 1e-5,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "use_bias": False,
    "sliding_window": WINDOW,
}

_GPT: dict[str, Any] = {
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 2,
    "n_inner": 64,
    "n_ctx": 512,
    "n_positions": 512,
}

# Every spelling of "four experts, two of them for each token, one shared expert, the first layer dense".
_EXPERTS: dict[str, Any] = {
    "num_experts": 4,
    "n_routed_experts": 4,
    "num_local_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "num_experts_per_token": 2,
    "moe_topk": 2,
    "moe_top_k": 2,
    "moe_k": 2,
    "n_shared_experts": 1,
    "num_shared_experts": 1,
    "num_shared_expert": 1,
    "moe_num_shared_experts": 1,
    "first_k_dense_replace": 1,
    "num_dense_layers": 1,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 32,
    "shared_intermediate_size": 32,
    "share_expert_dim": 32,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.0,
    "n_group": 1,
    "topk_group": 1,
    "scoring_func": "sigmoid",
    "score_function": "sigmoid",
    "topk_method": "noaux_tc",
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "moe_layer_freq": 1,
}

_MLA: dict[str, Any] = {
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 32,
    "num_key_value_heads": 2,
}

_YARN: dict[str, Any] = {
    "type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 1024,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "beta_fast": 32,
    "beta_slow": 1,
}
_SU: dict[str, Any] = {
    "type": "longrope",
    "original_max_position_embeddings": 1024,
    "short_factor": [1.0] * 8,
    "long_factor": [1.0] * 8,
}

_LLAMA4_SCALING: dict[str, Any] = {
    "rope_theta": 10000.0,
    "rope_type": "default",
    "llama_4_scaling_beta": 0.1,
    "original_max_position_embeddings": 32,
}

_INDEXER: dict[str, Any] = {"index_head_dim": 32, "index_n_heads": 2, "index_topk": 24}

_LONGCAT: dict[str, Any] = {
    "attention_method": "MLA",
    "zero_expert_type": "identity",
    "zero_expert_num": 1,
    "ffn_hidden_size": 64,
    "expert_ffn_hidden_size": 32,
    "num_layers": 2,
    "mla_scale_q_lora": True,
    "mla_scale_kv_lora": True,
}

_GRANITE: dict[str, Any] = {
    "logits_scaling": 1.0,
    "attention_multiplier": 0.18,
    "embedding_multiplier": 1.0,
    "residual_multiplier": 1.0,
}

_MAMBA: dict[str, Any] = {
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_d_ssm": 64,
    "mamba_d_state": 8,
    "mamba_d_conv": 4,
    "mamba_n_groups": 1,
    "mamba_proj_bias": False,
    "mamba_conv_bias": True,
    "mamba_expand": 1,
}

_DELTA_NET: dict[str, Any] = {
    "linear_num_value_heads": 2,
    "linear_num_key_heads": 1,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "linear_allow_neg_eigval": True,
    "full_attention_interval": 2,
    "partial_rotary_factor": 0.5,
}

_KIMI_DELTA: dict[str, Any] = {
    "linear_attn_config": {
        "num_heads": 2,
        "head_dim": 16,
        "short_conv_kernel_size": 4,
        "kda_layers": [1, 2],
        "full_attn_layers": [3],
        "gate_lower_bound": -5.0,
    },
    "num_hidden_layers": 3,
}

_SLIDING_THEN_FULL: dict[str, Any] = {
    "layer_types": [_SLIDING, _FULL, _SLIDING, _FULL],
    "num_hidden_layers": 4,
}
_FULL_THEN_SLIDING: dict[str, Any] = {"layer_types": [_FULL, _SLIDING]}


def _config(model_type: str, *parts: dict[str, Any], **own: Any) -> dict[str, Any]:
    config = dict(_BASE)
    for part in parts:
        config |= part
    return config | {"model_type": model_type} | own


def _wrapped(model_type: str, text: dict[str, Any], **own: Any) -> dict[str, Any]:
    """The configuration of a model that sees, of which only the text part matters here."""
    return {"model_type": model_type, "text_config": text, "vocab_size": VOCABULARY, **own}


_DENSE: dict[str, dict[str, Any]] = {
    "apertus": _config("apertus", post_norm=False, qk_norm=True),
    "cohere": _config("cohere", use_qk_norm=True),
    "ernie4_5": _config("ernie4_5"),
    "exaone": _config("exaone", num_layers=2),
    "gemma": _config("gemma"),
    "gemma2": _config("gemma2", query_pre_attn_scalar=32.0),
    "glm": _config("glm"),
    "glm4": _config("glm4", partial_rotary_factor=0.5),
    "gpt2": _config("gpt2", _GPT, num_key_value_heads=None),
    "gpt_bigcode": _config("gpt_bigcode", _GPT),
    "gpt_neox": _config("gpt_neox", num_key_value_heads=None, rotary_emb_base=10000, rotary_pct=0.5),
    "gptj": _config("gptj", _GPT, rotary_dim=16),
    "granite": _config("granite", _GRANITE),
    "helium": _config("helium"),
    "hunyuan_v1_dense": _config("hunyuan_v1_dense"),
    "internlm2": _config("internlm2"),
    "internlm3": _config("internlm3"),
    "lille-130m": _config("lille-130m", _GPT, block_size=512, n_kv_heads=1),
    "llama": _config("llama"),
    "mimo": _config("mimo"),
    "minicpm": _config("minicpm", dim_model_base=64, scale_depth=1.4, scale_emb=2),
    "mistral3": _wrapped("mistral3", _config("mistral")),
    "nanbeige": _config("nanbeige"),
    "nanochat": _config("nanochat"),
    "nemotron": _config("nemotron", hidden_act="relu2"),
    "olmo2": _config("olmo2"),
    "phi": _config("phi", num_key_value_heads=2),
    "phi3": _config("phi3", num_key_value_heads=2),
    "pixtral": _wrapped("pixtral", _config("llama")),
    "plamo": _config("plamo", n_shared_head=2),
    "qwen2": _config("qwen2"),
    "qwen2_vl": _wrapped("qwen2_vl", _config("qwen2")),
    "qwen3": _config("qwen3"),
    "qwen3_vl": _wrapped("qwen3_vl", _config("qwen3")),
    "seed_oss": _config("seed_oss"),
    "smollm3": _config("smollm3", no_rope_layer_interval=2),
    "stablelm": _config("stablelm", use_qkv_bias=True, partial_rotary_factor=0.5),
    "starcoder2": _config("starcoder2"),
    "talkie": _config("talkie"),
    "telechat3": _config("telechat3"),
    "afm7": _config("afm7", hidden_dim=64, num_layers=3, num_kv_reuse_layers=1, num_heads=2, num_kv_heads=1),
    "iquestloopcoder": _config("iquestloopcoder", loop_num=2, loop_window_size=WINDOW),
    "llama4_text": _config("llama4_text", intermediate_size_mlp=64, no_rope_layers=[1, 0], use_qk_norm=True),
    "nemotron-nas": _config(
        "nemotron-nas",
        num_hidden_layers=3,
        block_configs=[
            {"attention": {"n_heads_in_group": 2}, "ffn": {"ffn_mult": 1.0}},
            {"attention": {"no_op": True}, "ffn": {"replace_with_linear": True}},
            {"attention": {"n_heads_in_group": 1}, "ffn": {"no_op": True}},
        ],
    ),
    "nanbeige:loops": _config("nanbeige", num_loops=2),
    "openelm": _config(
        "openelm",
        num_transformer_layers=2,
        model_dim=64,
        ffn_dim_divisor=16,
        num_query_heads=[2, 2],
        num_kv_heads=[1, 1],
        ffn_multipliers=[1.0, 1.0],
    ),
    "phi3small": _config(
        "phi3small",
        dense_attention_every_n_layers=2,
        ff_intermediate_size=64,
        gegelu_limit=20.0,
        blocksparse_block_size=32,
        blocksparse_num_local_blocks=1,
    ),
    "qwen": _config("qwen", kv_channels=32, num_key_value_heads=2),
    "youtu_llm": _config("youtu_llm", _MLA),
}

_MIXTURES: dict[str, dict[str, Any]] = {
    "deepseek": _config("deepseek", _EXPERTS),
    "dots1": _config("dots1", _EXPERTS),
    "ernie4_5_moe": _config("ernie4_5_moe", _EXPERTS, moe_capacity=[1, 1, 1], moe_layer_start_index=1),
    "glm4_moe": _config("glm4_moe", _EXPERTS, rope_scaling=None, use_qk_norm=True, partial_rotary_factor=0.5),
    "granitemoe": _config("granitemoe", _EXPERTS, _GRANITE),
    "minimax": _config("minimax", _EXPERTS, rotary_dim=16),
    "mixtral": _config("mixtral", _EXPERTS),
    "olmoe": _config("olmoe", _EXPERTS),
    "phimoe": _config("phimoe", _EXPERTS),
    "qwen2_moe": _config("qwen2_moe", _EXPERTS),
    "qwen3_moe": _config("qwen3_moe", _EXPERTS),
    "qwen3_vl_moe": _wrapped("qwen3_vl_moe", _config("qwen3_moe", _EXPERTS)),
    "Klear": _config("Klear", _EXPERTS),
    "bailing_moe": _config("bailing_moe", _EXPERTS),
    "dbrx": _config(
        "dbrx",
        d_model=64,
        n_layers=2,
        n_heads=2,
        attn_config={"kv_n_heads": 1, "clip_qkv": 8.0, "rope_theta": 10000.0},
        ffn_config={"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2},
    ),
    "hunyuan": _config(
        "hunyuan",
        _EXPERTS,
        num_hidden_layers=4,
        use_mixed_mlp_moe=True,
        use_qk_norm=True,
        use_cla=True,
        cla_share_factor=2,
        rope_scaling={"type": "dynamic", "factor": 1.0, "alpha": 2.0},
    ),
    "phixtral": _config(
        "phixtral", num_vocab=VOCABULARY, model_dim=64, num_heads=2, num_layers=2, rotary_dim=16
    ),
    "solar_open": _config("solar_open", _EXPERTS, partial_rotary_factor=0.5),
}

_LATENT: dict[str, dict[str, Any]] = {
    "deepseek_v2": _config("deepseek_v2", _EXPERTS, _MLA, rope_scaling=_YARN),
    "deepseek_v3": _config("deepseek_v3", _EXPERTS, _MLA),
    "kimi_k25": _wrapped("kimi_k25", _config("deepseek_v3", _EXPERTS, _MLA)),
    "minicpm3": _config("minicpm3", _MLA, dim_model_base=64, scale_depth=1.4, scale_emb=2, rope_scaling=_SU),
    "glm4_moe_lite": _config("glm4_moe_lite", _EXPERTS, _MLA),
    "kimi_vl": _wrapped("kimi_vl", _config("deepseek_v3", _EXPERTS, _MLA)),
    "mistral4": _config("mistral4", _EXPERTS, _MLA, rope_parameters=_LLAMA4_SCALING),
    "deepseek_v32": _config("deepseek_v32", _EXPERTS, _MLA, _INDEXER),
    "glm_moe_dsa": _config(
        "glm_moe_dsa",
        _EXPERTS,
        _MLA,
        _INDEXER,
        rope_parameters={"rope_theta": 10000.0, "rope_type": "default"},
    ),
    "longcat_flash": _config("longcat_flash", _EXPERTS, _MLA, _LONGCAT),
    "longcat_flash_ngram": _config(
        "longcat_flash_ngram",
        _EXPERTS,
        _MLA,
        _LONGCAT,
        ngram_vocab_size_ratio=1,
        emb_neighbor_num=3,
        emb_split_num=2,
    ),
}

_ROPE_BY_KIND: dict[str, Any] = {
    _FULL: {"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": 0.5},
    _SLIDING: {"rope_theta": 1000.0, "rope_type": "default", "partial_rotary_factor": 1.0},
}

_GEMMA4: dict[str, Any] = _config(
    "gemma4_text",
    _SLIDING_THEN_FULL,
    global_head_dim=32,
    vocab_size_per_layer_input=VOCABULARY,
    num_kv_shared_layers=2,
    hidden_size_per_layer_input=16,
)

_WINDOWED: dict[str, dict[str, Any]] = {
    "cohere2": _config("cohere2", sliding_window_pattern=2),
    "exaone4": _config("exaone4", num_hidden_layers=4, sliding_window_pattern="LG", rope_scaling=None),
    "gemma3_text": _config("gemma3_text", sliding_window_pattern=2, query_pre_attn_scalar=32),
    "gemma4_text": _GEMMA4,
    "gpt_oss": _config("gpt_oss", _EXPERTS, _SLIDING_THEN_FULL),
    "llama:sliding": _config("llama", _FULL_THEN_SLIDING),
    "ministral3:full": _config("ministral3", rope_parameters=_LLAMA4_SCALING),
    "ministral3": _config(
        "ministral3",
        _FULL_THEN_SLIDING,
        rope_parameters=_LLAMA4_SCALING,
    ),
    "olmo3": _config("olmo3", _SLIDING_THEN_FULL),
    "afmoe": _config("afmoe", _EXPERTS, _SLIDING_THEN_FULL),
    "exaone_moe": _config("exaone_moe", _EXPERTS, _SLIDING_THEN_FULL, is_moe_layer=[False, True, True, True]),
    "gemma3n": _wrapped(
        "gemma3n",
        _config(
            "gemma3n_text",
            _SLIDING_THEN_FULL,
            vocab_size_per_layer_input=VOCABULARY,
            num_kv_shared_layers=2,
            rope_local_base_freq=10000.0,
            final_logit_softcapping=30.0,
            activation_sparsity_pattern=[0.5, 0.5, 0.0, 0.0],
            hidden_size_per_layer_input=16,
            altup_num_inputs=2,
            altup_coef_clip=120.0,
            altup_correct_scale=True,
            altup_active_idx=0,
            laurel_rank=8,
        ),
    ),
    "gemma4": _wrapped("gemma4", _GEMMA4),
    "gemma4_text:moe": _GEMMA4
    | _EXPERTS
    | {"enable_moe_block": True, "top_k_experts": 2, "num_kv_shared_layers": 0, "attention_k_eq_v": True},
    "laguna": _config("laguna", _EXPERTS, _SLIDING_THEN_FULL, rope_parameters=_ROPE_BY_KIND),
    "llama4": _wrapped(
        "llama4",
        _config(
            "llama4_text",
            _EXPERTS,
            num_hidden_layers=4,
            attention_chunk_size=WINDOW,
            interleave_moe_layer_step=2,
            intermediate_size_mlp=64,
            num_experts_per_tok=1,
            rope_scaling=None,
            use_qk_norm=True,
            floor_scale=16,
        ),
    ),
    "mellum": _config("mellum", _EXPERTS, _SLIDING_THEN_FULL, rope_parameters=_ROPE_BY_KIND),
    "mimo_v2_flash": _config(
        "mimo_v2_flash",
        _EXPERTS,
        num_hidden_layers=3,
        hybrid_layer_pattern=[0, 1, 1],
        moe_layer_freq=[0, 1, 1],
        n_shared_experts=None,
        add_swa_attention_sink_bias=True,
        add_full_attention_sink_bias=False,
        sliding_window_size=WINDOW,
        layernorm_epsilon=1e-5,
        swa_rope_theta=10000.0,
        swa_num_attention_heads=2,
        swa_num_key_value_heads=1,
        v_head_dim=32,
        swa_head_dim=32,
        swa_v_head_dim=32,
        partial_rotary_factor=0.5,
    ),
    "muse_glimmer": _config("muse_glimmer", _SLIDING_THEN_FULL),
    "plamo3": _config("plamo3", sliding_window_pattern=2),
    "spark2_5": _config("spark2_5", _SLIDING_THEN_FULL, rope_parameters=_ROPE_BY_KIND),
    "step3p5": _config("step3p5", _EXPERTS, _SLIDING_THEN_FULL, num_attention_groups=1),
    "gemma3": _wrapped("gemma3", _config("gemma3_text", sliding_window_pattern=2, query_pre_attn_scalar=32)),
}

_LFM2: dict[str, Any] = _config(
    "lfm2",
    conv_bias=False,
    conv_L_cache=3,
    block_dim=64,
    block_multiple_of=16,
    block_ffn_dim_multiplier=1.0,
    block_auto_adjust_ff_dim=False,
    layer_types=["conv", _FULL],
)

_BAILING: dict[str, Any] = {"layer_group_size": 2, "group_norm_size": 1, "kda_lower_bound": -5.0}

_RECURRENT: dict[str, dict[str, Any]] = {
    "falcon_h1": _config("falcon_h1", _MAMBA),
    "granitemoehybrid": _config(
        "granitemoehybrid", _EXPERTS, _GRANITE, _MAMBA, layer_types=["mamba", "attention"]
    ),
    "granitemoehybrid:dense": _config(
        "granitemoehybrid", _GRANITE, _MAMBA, layer_types=["mamba", "attention"]
    ),
    "jamba": _config(
        "jamba",
        _EXPERTS,
        _MAMBA,
        num_hidden_layers=4,
        attn_layer_offset=1,
        attn_layer_period=2,
        expert_layer_offset=1,
        expert_layer_period=2,
    ),
    "lfm2": _LFM2,
    "mamba": _config("mamba", state_size=8, conv_kernel=4, use_conv_bias=True, time_step_rank=8),
    "mamba:falcon": _config(
        "falcon_mamba", state_size=8, conv_kernel=4, use_conv_bias=True, time_step_rank=8
    ),
    "mamba2": _config(
        "mamba2",
        num_heads=4,
        head_dim=16,
        state_size=8,
        conv_kernel=4,
        n_groups=1,
        use_conv_bias=True,
        time_step_limit=(0.001, 100.0),
        time_step_rank="auto",
    ),
    "nemotron_h": _config(
        "nemotron_h",
        _EXPERTS,
        mamba_num_heads=4,
        mamba_head_dim=16,
        mamba_proj_bias=False,
        ssm_state_size=8,
        conv_kernel=4,
        n_groups=1,
        use_conv_bias=True,
        hybrid_override_pattern=["M", "*", "-", "E"],
    ),
    "qwen3_5": _wrapped("qwen3_5", _config("qwen3_5_text", _DELTA_NET)),
    "prism_hadamard_qwen35": _wrapped(
        "prism_hadamard_qwen35",
        _config("qwen3_5_text", _DELTA_NET, hidden_size=128),
        schema_version=1,
        tensor_namespace="mlx-lm-text",
        quantization={"bits": 2, "group_size": 128, "mode": "affine"},
        modules=[
            {"path": f"model.layers.{layer}.mlp.up_proj", "embedding": False, "dtype": "float16", "block": 0}
            for layer in range(2)
        ],
    ),
    "qwen3_5_moe": _wrapped("qwen3_5_moe", _config("qwen3_5_moe_text", _EXPERTS, _DELTA_NET)),
    "qwen3_next": _config("qwen3_next", _EXPERTS, _DELTA_NET),
    "recurrent_gemma": _config(
        "recurrent_gemma",
        num_hidden_layers=3,
        conv1d_width=4,
        logits_soft_cap=30.0,
        attention_window_size=WINDOW,
        block_types=["recurrent", "recurrent", "attention"],
    ),
    "baichuan_m1": _config("baichuan_m1", sliding_window_layers=[1], conv_window=2),
    "bailing_hybrid": _config("bailing_hybrid", _EXPERTS, _MLA, _BAILING),
    "bailing_moe_linear": _config("bailing_moe_linear", _EXPERTS, _BAILING, use_qk_norm=True),
    "bailing_moe_v3": _config("bailing_moe_v3", _EXPERTS, _MLA, _BAILING),
    "deepseek_v41": _config(
        "deepseek_v41",
        _EXPERTS,
        num_hidden_layers=4,
        q_lora_rank=32,
        qk_rope_head_dim=16,
        o_groups=2,
        o_lora_rank=16,
        scoring_func="sqrtsoftplus",
        compress_ratios=[0, 1, 4, 4],
        kv_source_layer_ids=[1, 2],
        index_source_layer_ids=[1, 2, 3],
        candidate_source_layer_id=2,
        candidate_topk_blocks=3,
        candidate_block_size=2,
        index_n_heads=2,
        index_head_dim=32,
        index_topk=4,
        hc_mult=2,
    ),
    "gear": _config("gear", layer_types=["conv_mixer", _SLIDING, _FULL], num_hidden_layers=3),
    "kimi_k3": _wrapped(
        "kimi_k3",
        _config(
            "kimi_linear",
            _EXPERTS,
            _MLA,
            _KIMI_DELTA,
            activation_situ_beta=1.0,
            activation_situ_linear_beta=1.0,
        ),
    ),
    "kimi_linear": _config("kimi_linear", _EXPERTS, _MLA, _KIMI_DELTA, model_max_length=4096),
    "lfm2-vl": _wrapped("lfm2-vl", _LFM2 | {"model_type": "lfm2"}),
    "lfm2_moe": _LFM2 | _EXPERTS | {"model_type": "lfm2_moe", "use_expert_bias": True},
    "minimax_m3_vl": _wrapped(
        "minimax_m3_vl",
        _config(
            "minimax_m3",
            _EXPERTS,
            num_hidden_layers=3,
            dense_intermediate_size=64,
            mlp_layer_types=["dense", "sparse", "sparse"],
            layer_types=[_FULL, "sparse_attention", "sparse_attention"],
            index_n_heads=1,
            index_head_dim=32,
            index_block_size=4,
            index_topk_blocks=4,
        ),
    ),
    "olmo_hybrid": _config("olmo_hybrid", _DELTA_NET, layer_types=["linear_attention", _FULL]),
    "plamo2": _config("plamo2", _MAMBA, hidden_size_per_head=32, mamba_num_heads=2),
    "rwkv7": _config("rwkv7", a_low_rank_dim=8, v_low_rank_dim=8, gate_low_rank_dim=8, decay_low_rank_dim=8),
}

CONFIGS: dict[str, dict[str, Any]] = {**_DENSE, **_MIXTURES, **_LATENT, **_WINDOWED, **_RECURRENT}
"""By model type, or ``type:variant`` where one type has several mixes of caches."""

_METAL = "its forward pass is a Metal kernel ({}) without a counterpart on the CPU"
NOT_BUILT: dict[str, str] = {
    "bitnet": _METAL.format("the ternary matrix product"),
    "muse_spark": _METAL.format("norm and rotation of queries and keys"),
    "olmo": "it raises for more than one token (it adds the word causal to the scores), and wants ai2-olmo",
}
"""The model types that are not built, and why."""

INEXACT: dict[str, str] = {
    "phi3small": (
        "its block-sparse layers add the boolean mask to the scores instead of masking with it, and align "
        "their blocks to the end of what is computed at once: a token sees later ones of its own chunk "
        "(logits differ by 15 % between one chunk and many; by nothing if all chunks are whole blocks)"
    ),
    "plamo3": (
        "its mask shows one token more than the window, which the rotating cache has dropped for the first "
        "token of every chunk but the first (logits differ by 1.3 %; by nothing with a cache one longer)"
    ),
}
"""Configurations whose answer depends on how the prompt is cut into chunks, warm or not, and why.

For these an answer is right when it is the answer after the same chunks.
"""

ALONE: dict[str, str] = {
    "afm7": "the layers that share keys rotate their queries by the position in the batch, padding included",
    "gemma2": "its attention cannot apply a mask that differs between requests: mlx-lm raises",
    "gpt_bigcode": "it counts positions from one offset for all requests: mlx-lm raises",
    "minimax_m3_vl": "it cuts blocks of keys over places in the batch, padding included",
    "phi3small": "its block-sparse attention loses the batch dimension: mlx-lm raises",
}
"""Configurations of which mlx-lm cannot batch requests, with warm state or without, and why."""

_PADDING = "its recurrent state takes in the padding behind the shorter prompts"
UNPADDED: dict[str, str] = {
    "baichuan_m1": "what its convolution keeps of the last token is padding for the shorter prompts",
    "bailing_moe_linear": _PADDING,
    "jamba": _PADDING,
    "longcat_flash_ngram": "the last tokens it remembers are padding for the shorter prompts",
    "mamba": _PADDING,
    "mamba:falcon": _PADDING,
    "nemotron_h": _PADDING,
    "olmo_hybrid": _PADDING,
    "recurrent_gemma": _PADDING,
    "rwkv7": _PADDING,
}
"""Configurations of which mlx-lm can batch prompts of one length only, with warm state or without."""

# The initial values of these are part of how a recurrence works. Others let its state vanish or explode, or
# let the current token drown it.
_KEPT = ("A_log", "r_k")

# Feed-forward layers with a squared activation, which would drown the rest if they were scaled too.
_QUIET = {"nemotron": ".mlp.up_proj", "rwkv7": ".ffn."}

# Added to the bias of what decides how fast a recurrence forgets. As initialised, nothing is left after a few
# tokens, and a wrong state would hardly change an answer.
_REMEMBERING = {
    "dt_bias": -5.0,
    "dt_proj.bias": -5.0,
    "w_lora.lora.2.bias": -5.0,
    "recurrent_param": -5.0,
}


def _spread(model_type: str, name: str, array: mx.array) -> mx.array:
    """Weights larger than the usual initialisation, so that every token of the context matters.

    State that is only nearly right gives another answer then. Matrices that begin as zeros, for a checkpoint
    to fill, get random values: a router of zeros would leave the choice of experts to chance.
    """
    for ending, shift in _REMEMBERING.items():
        if name.endswith(ending):
            return array + shift
    if array.ndim < 2 or name.endswith(_KEPT) or _QUIET.get(model_type, name + ".") in name:
        return array
    if name.endswith((".scales", ".biases")):
        return mx.random.normal(array.shape, array.dtype) * 0.1
    if array.dtype == mx.uint32:
        return mx.random.randint(0, 1 << 32, array.shape, mx.uint32)
    if not mx.any(array).item():
        array = mx.random.normal(array.shape, array.dtype) * array.shape[-1] ** -0.5
    return array * 3


def model_types() -> set[str]:
    """Every module of mlx-lm that defines a model."""
    names = (module.name for module in pkgutil.iter_modules(mlx_lm.models.__path__))
    return {name for name in names if _defines_model(name)}


def _defines_model(module: str) -> bool:
    try:
        return hasattr(import_module(f"mlx_lm.models.{module}"), "Model")
    except SystemExit:
        # A package that it asks for is not installed.
        return True


def model_type_of(name: str) -> str:
    """The module that a configuration is for."""
    model_type = CONFIGS[name]["model_type"]
    return str(MODEL_REMAPPING.get(model_type, model_type))


def build(name: str, seed: int = 0) -> Any:
    """The model of a configuration, with weights that depend on the seed only."""
    config = copy.deepcopy(CONFIGS[name])
    model_class, args_class = _get_classes(config)
    mx.random.seed(seed)
    model = model_class(args_class.from_dict(config))
    model_type = config["model_type"]
    weights = [(key, _spread(model_type, key, array)) for key, array in tree_flatten(model.parameters())]
    model.update(tree_unflatten(weights))
    if model_type == "phi3small":
        # Token ids of its own vocabulary, all of them beyond ours.
        model._dummy_tokenizer_ids = mx.array([], mx.int32)
    model.eval()
    mx.eval(model.parameters())
    return model
