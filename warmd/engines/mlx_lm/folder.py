"""Says what is wrong with a model's folder before anything slow or irrevocable begins."""

from __future__ import annotations

import re
from pathlib import Path

from warmd.errors import CannotStartError

_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w.-]+)?")


class ModelError(CannotStartError):
    """The model cannot be loaded."""

    def __init__(self, model: str, reason: str) -> None:
        super().__init__(f"cannot load the model {model!r}: {reason[:400]}")


def check_model_folder(model: str | None, *, needs_weights: bool = True) -> None:
    """Check what can be told without loading. A Hugging Face name passes: only the hub knows.

    Raises:
        ModelError: It is a path, and not that of a folder with a model in it.
    """
    if model is None:
        return
    folder = Path(model)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ModelError(model, "the folder has no config.json")
        if needs_weights and not any(folder.glob("*.safetensors")):
            raise ModelError(model, "the folder has no *.safetensors")
    elif folder.exists():
        raise ModelError(model, "expected a folder, found a file")
    elif not _HUB_NAME.fullmatch(model):
        raise ModelError(model, "no such folder")


def check_adapter(path: str | None) -> None:
    """Check that an adapter is there: mlx-lm looks for it on this machine only.

    Raises:
        ModelError: It is not.
    """
    if path is not None and not Path(path).is_dir():
        raise ModelError(path, "expected a folder with an adapter")
