"""What of the engine is there: `python -m warmd.engines.mlx_lm.probe` prints it as JSON.

A process of its own for `warmd doctor`: a broken installation of mlx may abort whoever imports it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from warmd.engines.mlx_lm.seams import SEAMS
from warmd.engines.seams import find_missing


def probe() -> dict[str, Any]:
    """Whether the GPU can be used, what Metal recommends to take of it (bytes), and seams that are missing.

    Raises:
        ImportError: mlx or mlx-lm is not there, or does not fit this machine.
    """
    import mlx.core as mx
    import mlx_lm.server  # noqa: F401 - told as what it is, not as a list of missing seams

    device = mx.device_info()
    recommended = device.get("max_recommended_working_set_size")
    return {
        "metal": bool(mx.metal.is_available()),
        "device": str(device.get("device_name", "")),
        "recommended_bytes": int(recommended) if recommended else None,
        "missing": find_missing(SEAMS),
    }


def main() -> int:
    """Print what there is, or why there is nothing."""
    try:
        found = probe()
    except ImportError as error:
        found = {"error": str(error)}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
