"""Every place where we hook into vllm-mlx, in one list, checked at start.

When a new vllm-mlx moves one, the check names it before anything is served. What only an instance has (an
attribute that `__init__` sets) cannot be checked from outside; `tests/engines/vllm_mlx` uses each of them.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from warmd.engines.seams import Seams, find_missing
from warmd.errors import CannotStartError

TESTED = ">=0.6,<0.7"

SEAMS: Seams = (
    # Parses every flag, loads the model and then calls `uvicorn.run(app, …)`: we put ours there.
    ("vllm_mlx.cli:create_parser", ()),
    ("vllm_mlx.cli:argparse", ()),
    ("vllm_mlx.cli:serve_command", ("args",)),
    ("uvicorn:run", ("app",)),
    # The engine of the moment: resident, of several models, or the only one.
    ("vllm_mlx.server:app", ()),
    ("vllm_mlx.server:_engine", ()),
    ("vllm_mlx.server:_residency_manager", ()),
    ("vllm_mlx.server:_default_model_key", ()),
    ("vllm_mlx.server:_model_manager", ()),
    ("vllm_mlx.server:_default_chat_template_kwargs", ()),
    ("vllm_mlx.lifecycle:ResidencyManager.get_engine", ("self", "model_key")),
    ("vllm_mlx.model_registry:ModelManager.get_metrics_engine", ("self",)),
    # The request path from a chat request to text.
    ("vllm_mlx.server:ChatCompletionRequest", ()),
    ("vllm_mlx.server:_prepare_chat_completion_invocation", ("engine", "request", "effective_max_tokens")),
    ("vllm_mlx.engine.batched:convert_tools_for_template", ("tools",)),
    (
        "vllm_mlx.engine.batched:BatchedEngine._apply_chat_template",
        ("self", "messages", "tools", "chat_template_kwargs", "enable_thinking"),
    ),
    (
        "vllm_mlx.engine.simple:SimpleEngine._render_chat_prompt",
        ("self", "messages", "template_tools", "chat_template_kwargs", "enable_thinking"),
    ),
    # The one thread that owns the model.
    ("vllm_mlx.engine.batched:BatchedEngine._run_on_generation_worker", ("self", "operation")),
    # Looks every request up before it is scheduled: there we keep ours from having been pushed out.
    ("vllm_mlx.scheduler:Scheduler.add_request", ("self", "request")),
    # Decides what of that is used: there we see what a request really begins from.
    ("vllm_mlx.scheduler:Scheduler._schedule_waiting", ("self",)),
    ("vllm_mlx.request:Request", ("request_id", "prompt_token_ids", "prompt_cache_key", "cached_tokens")),
    ("vllm_mlx.scheduler:Scheduler._validate_cache", ("self", "cache")),
    ("vllm_mlx.scheduler:Scheduler._bounded_kv_size", ("self",)),
    ("vllm_mlx.scheduler:Scheduler._bound_cache_layers", ("cache", "max_kv_size")),
    # The cache that requests are served from.
    ("vllm_mlx.memory_cache:MemoryAwarePrefixCache.fetch", ("self", "tokens")),
    ("vllm_mlx.memory_cache:CacheStats", ("hits", "misses", "tokens_saved")),
    ("vllm_mlx.memory_cache:MemoryAwarePrefixCache.prepare_store", ("self", "tokens", "cache")),
    ("vllm_mlx.memory_cache:MemoryAwarePrefixCache.commit_prepared", ("self", "entry", "evict_prefixes")),
    ("vllm_mlx.memory_cache:MemoryAwarePrefixCache.clone_for_replay", ("self", "cache")),
    ("vllm_mlx.memory_cache:MemoryAwarePrefixCache.remove", ("self", "tokens")),
    ("vllm_mlx.memory_cache:MemoryAwarePrefixCache.__contains__", ("self", "tokens")),
    ("vllm_mlx.memory_cache:MemoryAwarePrefixCache.save_to_disk", ("self", "cache_dir")),
    ("vllm_mlx.memory_cache:MemoryAwarePrefixCache.load_from_disk", ("self", "cache_dir")),
    ("vllm_mlx.memory_cache:MemoryCacheConfig", ("min_prefix_tokens",)),
    ("vllm_mlx.memory_cache:estimate_kv_cache_memory", ("cache",)),
    # The simple engine's cache of system prompts.
    ("vllm_mlx.engine.simple:SimpleEngine.stream_chat", ("self", "messages", "tools")),
    (
        "vllm_mlx.engine.chat_template_safety:build_system_prompt_cache_prefix",
        ("tokenizer", "messages", "template_kwargs", "normalized_messages"),
    ),
    ("mlx_lm.models.cache:make_prompt_cache", ("model",)),
)


class NotInstalledError(CannotStartError):
    """There is no vllm-mlx in this environment."""

    def __init__(self) -> None:
        super().__init__("--engine vllm-mlx needs vllm-mlx in the same environment: pip install vllm-mlx")


class VllmMlxNeedsError(CannotStartError):
    """The installed vllm-mlx does not have what we build on."""

    def __init__(self, missing: list[str]) -> None:
        super().__init__(
            f"--engine vllm-mlx needs vllm-mlx {TESTED} (found {_installed()}); missing: {', '.join(missing)}"
        )


def check_seams() -> None:
    """Check that every seam is where we expect it.

    Raises:
        NotInstalledError: vllm-mlx is not installed.
        VllmMlxNeedsError: Names everything that is missing or has other parameters.
    """
    if find_spec("vllm_mlx") is None:
        raise NotInstalledError
    if missing := find_missing(SEAMS):
        raise VllmMlxNeedsError(missing)


def _installed() -> str:
    try:
        return version("vllm-mlx")
    except PackageNotFoundError:
        return "none"
