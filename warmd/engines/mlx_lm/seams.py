"""Every place where we hook into mlx-lm's server, in one list, checked at start.

mlx-lm's server is used as it is; these names are what we build on. When a new mlx-lm moves one, the check
names it before anything is served, and `tests/engines/mlx_lm/test_seams.py` fails with the same words.
"""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from warmd.engines import templates
from warmd.engines.seams import Seams, find_missing
from warmd.errors import CannotStartError

TESTED = ">=0.32,<0.33"

CHECK_SEAMS: Seams = (
    # The request path from messages to token ids.
    ("mlx_lm.server:ResponseGenerator._tokenize", ("self", "tokenizer", "request", "args")),
    ("mlx_lm.server:CompletionRequest", ("request_type", "prompt", "messages", "tools", "role_mapping")),
    ("mlx_lm.utils:load_tokenizer", ("model_path", "tokenizer_config_extra")),
    # Finds or downloads a model's files without loading them.
    ("mlx_lm.utils:_download", ("path_or_hf_repo",)),
    # Makes a model whose weights stay on the disk, to see what its state takes.
    ("mlx_lm.utils:load_model", ("model_path", "lazy", "get_model_classes")),
    ("mlx_lm.utils:load_adapters", ("model", "adapter_path")),
    ("mlx_lm.utils:_get_classes", ("config",)),
    ("mlx_lm.models.cache:make_prompt_cache", ("model",)),
)
"""Those that `warmd check --model` builds on as well, which runs beside an older mlx-lm, too."""

SEAMS: Seams = (
    *CHECK_SEAMS,
    # Parses every server flag, then looks up `ModelProvider` and `run` in its module: we put ours there.
    ("mlx_lm.server:main", ()),
    ("mlx_lm.server:run", ("host", "port", "model_provider")),
    # The parser that main makes for its flags: ours tells errors in one line.
    ("mlx_lm.server:argparse.ArgumentParser", ()),
    # Loads models on demand. `_load` replaces the loaded model: state follows.
    ("mlx_lm.server:ModelProvider.__init__", ("self", "cli_args")),
    ("mlx_lm.server:ModelProvider._load", ("self", "model_path", "adapter_path", "draft_model_path")),
    # The one thread that owns the model asks `_next_request` for work: warming goes in there.
    ("mlx_lm.server:ResponseGenerator.__init__", ("self", "model_provider", "prompt_cache")),
    ("mlx_lm.server:ResponseGenerator._generate", ("self",)),
    ("mlx_lm.server:ResponseGenerator._run_generate", ("self",)),
    ("mlx_lm.server:ResponseGenerator._next_request", ("self", "timeout")),
    # Serves a request alone; its tokens go through a queue, on the engine's thread.
    ("mlx_lm.server:ResponseGenerator._serve_single", ("self", "request", "stream")),
    ("mlx_lm.server:Response", ("text", "token", "finish_reason")),
    # What stops such a request when its client goes away.
    ("mlx_lm.server:GenerationContext.stop", ("self",)),
    # Tells the other ranks of a distributed job.
    ("mlx_lm.server:ResponseGenerator._share_object", ("self", "obj")),
    # Tells prefilling from decoding; looked up in the server's module.
    ("mlx_lm.server:BatchGenerator.next", ("self",)),
    ("mlx_lm.server:BatchGenerator.insert_segments", ("self", "segments")),
    ("mlx_lm.server:APIHandler.__init__", ("self", "response_generator")),
    ("mlx_lm.server:get_system_fingerprint", ()),
    # Finds the models to list; looked up in the server's module.
    ("mlx_lm.server:scan_cache_dir", ("cache_dir",)),
    # What a request is served from.
    ("mlx_lm.models.cache:LRUPromptCache.__init__", ("self", "max_size")),
    ("mlx_lm.models.cache:LRUPromptCache.fetch_nearest_cache", ("self", "model", "tokens")),
    # Quantises the state as the server's sequential path does.
    (
        "mlx_lm.generate:maybe_quantize_kv_cache",
        ("prompt_cache", "quantized_kv_start", "kv_group_size", "kv_bits"),
    ),
    ("mlx_lm.utils:hf_repo_to_path", ("hf_repo",)),
    # Gathers the caches of a batch's requests: a hit's own caches are taken over, not copied.
    ("mlx_lm.models.cache:KVCache.merge", ("caches",)),
    ("mlx_lm.models.cache:BatchKVCache.__init__", ("self", "left_padding")),
)

# Without these something is missing, but nothing is wrong, so they are not checked at start.
OPTIONAL_SEAMS: Seams = (
    # Compiles a chat template that asks a clock of ours: tells which prompts change by themselves.
    templates.SEAM,
)


class EngineNeedsError(CannotStartError):
    """The installed mlx-lm does not have what the embedded engine needs."""

    def __init__(self, missing: list[str]) -> None:
        hint = "; vllm-mlx wants an older one: --engine vllm-mlx serves with that" if _has_vllm_mlx() else ""
        super().__init__(
            f"the embedded engine needs mlx-lm {TESTED} (found {_installed()}{hint}); "
            f"missing: {', '.join(missing)}"
        )


class EngineImportError(CannotStartError):
    """mlx-lm is not there, or does not fit this machine."""

    def __init__(self, error: ImportError) -> None:
        reason = " ".join(str(error).split())[:400]
        super().__init__(f"the embedded engine, mlx-lm {TESTED}, cannot be imported: {reason}")


def check_seams(seams: Seams = SEAMS) -> None:
    """Check that seams are where we expect them.

    Raises:
        EngineImportError: mlx-lm, or mlx below it, cannot be imported at all.
        EngineNeedsError: Names everything that is missing or has other parameters.
    """
    try:
        importlib.import_module("mlx_lm.server")
    except ImportError as error:
        # A list of what is missing then would name everything but the cause.
        raise EngineImportError(error) from None
    if missing := find_missing(seams):
        raise EngineNeedsError(missing)


def _has_vllm_mlx() -> bool:
    return find_spec("vllm_mlx") is not None


def _installed() -> str:
    try:
        return version("mlx-lm")
    except PackageNotFoundError:
        return "none"
