"""Runs one model on two processes of this machine, as `mlx.launch` does on several."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.architectures import CONFIGS
from tests.serving.process import Server, free_port, serving
from tests.toys import make_model, make_raw_tokenizer

EVEN = {"num_attention_heads": 4, "num_key_value_heads": 2}
"""Two ranks share heads evenly."""

_HYBRID = (
    CONFIGS["qwen3_5"]["text_config"]
    | EVEN
    | {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "tie_word_embeddings": True}
)

MODELS: dict[str, dict[str, Any]] = {
    "llama": EVEN,
    # A window and everything before it, in turns.
    "gpt_oss": CONFIGS["gpt_oss"] | EVEN,
    # State that sums up, and rows.
    "qwen3_5": CONFIGS["qwen3_5"] | {"text_config": _HYBRID},
    # Layers on different ranks (`--pipeline`).
    "qwen2": EVEN,
}


def make_shardable(folder: Path, name: str) -> Path:
    """A tiny model of which two ranks can each hold a part."""
    vocabulary = {"vocab_size": make_raw_tokenizer().get_vocab_size()}
    config = MODELS[name] | vocabulary | {"model_type": name}
    if "text_config" in config:
        config["text_config"] = config["text_config"] | vocabulary
    config.pop("eos_token_id", None)
    make_model(folder, **config)
    # mlx-lm looks there for the files of a rank's layers.
    weights = dict.fromkeys(_names(folder / "model.safetensors"), "model.safetensors")
    index = {"metadata": {}, "weight_map": weights}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return folder


def _names(weights: Path) -> list[str]:
    with weights.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return [name for name in header if name != "__metadata__"]


def launch_two() -> list[str]:
    """What runs a command on two ranks."""
    # Beside the Python that runs the tests, whatever is on the path.
    launch = shutil.which("mlx.launch", path=str(Path(sys.executable).parent)) or "mlx.launch"
    return [launch, "-n", "2", "--backend", "ring", "-p", str(free_port()), "--"]


@contextmanager
def on_two_ranks(
    model: Path,
    prompts: Path,
    *arguments: str,
    on_rank_1: str = "",
    environment: dict[str, str] | None = None,
) -> Iterator[Server]:
    """`warmd serve` under `mlx.launch -n 2`, with the ring backend on the loopback address.

    Args:
        model: Its folder.
        prompts: Its prompts file.
        arguments: More of them.
        on_rank_1: What the shell does first on that rank alone.
        environment: Variables of both.
    """
    prefix = launch_two()
    if on_rank_1:
        prefix += ["bash", "-c", f'[ "$MLX_RANK" != 1 ] || {on_rank_1}; exec "$0" "$@"']
    with serving(model, prompts, *arguments, prefix=prefix, is_group=True, environment=environment) as server:
        yield server


def rank_pids(server: Server) -> dict[int, int]:
    """The process of each rank."""
    found: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        rank = [item[9:] for item in variables if item.startswith(b"MLX_RANK=")]
        if rank and b"WARMD_STATE_DIR=" + server.state.name.encode() in variables and b"warmd" in command:
            found[int(rank[0])] = int(folder.name)
    return found
