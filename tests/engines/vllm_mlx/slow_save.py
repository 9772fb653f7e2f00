"""warmd with a vllm-mlx that never ends writing its cache to disk."""

from __future__ import annotations

import sys
import time
from importlib import import_module

from warmd.cli import main

if __name__ == "__main__":
    cache_type = import_module("vllm_mlx.memory_cache").MemoryAwarePrefixCache
    cache_type.save_to_disk = lambda self, cache_dir: time.sleep(3600)
    sys.exit(main())
