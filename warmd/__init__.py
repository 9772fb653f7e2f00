"""Keeps the prompt prefixes of LLM agents warm in an MLX engine's KV cache."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warmd import warmup
    from warmd.config import load_settings
    from warmd.daemon import Daemon
    from warmd.embed import attach
    from warmd.errors import WarmdError
    from warmd.settings import Settings
    from warmd.warmup import load_warmup_file, warm_prefix_cache

__version__ = "0.1.0"

__all__ = [
    "Daemon",
    "Settings",
    "WarmdError",
    "__version__",
    "attach",
    "load_settings",
    "load_warmup_file",
    "warm_prefix_cache",
    "warmup",
]

_HOMES = {
    "Daemon": "warmd.daemon",
    "Settings": "warmd.settings",
    "WarmdError": "warmd.errors",
    "attach": "warmd.embed",
    "load_settings": "warmd.config",
    "load_warmup_file": "warmd.warmup",
    "warm_prefix_cache": "warmd.warmup",
}


def __getattr__(name: str) -> Any:
    # Lazy, so that `warmd check` starts without the event loop and the log machinery.
    if name == "warmup":
        return importlib.import_module("warmd.warmup")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
