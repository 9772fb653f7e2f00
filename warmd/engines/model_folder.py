"""Says what is wrong with a model's folder before anything slow or irrevocable begins."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from warmd.errors import CannotStartError

NOT_HERE = "not a folder, not in the local cache, and cannot be downloaded"


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
    try:
        _check(model, needs_weights=needs_weights)
    except OSError as error:
        raise ModelError(model, error.strerror or str(error)) from None


def _check(model: str, *, needs_weights: bool) -> None:
    folder = Path(model)
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ModelError(model, "the folder has no config.json")
        if needs_weights and not any(folder.glob("*.safetensors")):
            raise ModelError(model, "the folder has no *.safetensors")
    elif folder.exists():
        raise ModelError(model, "expected a folder, found a file")
    elif model.startswith(("/", "~", ".")):
        raise ModelError(model, "no such folder")
    elif not is_hub_name(model):
        raise ModelError(model, "no such folder, and no name of the Hugging Face hub: those are OWNER/NAME")


def check_model_is_here(model: str) -> None:
    """Check, too, that a model need not be downloaded where nothing may be.

    Raises:
        ModelError: It is a path without a model, or a name that is not in the hub's cache, and the hub is not
            to be asked.
    """
    check_model_folder(model)
    if Path(model).is_dir() or os.environ.get("MLXLM_USE_MODELSCOPE", "").lower() == "true":
        return
    # Imported here: folders do without. It is what the hub's client, which mlx-lm uses, goes by itself.
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE and not _snapshots(Path(constants.HF_HUB_CACHE), model).is_dir():
        raise ModelError(model, f"{NOT_HERE} (HF_HUB_OFFLINE is set)")


def is_hub_name(model: str) -> bool:
    """True for what can be a name on the hub, whether or not there is such a model."""
    # Imported here: it takes a tenth of a second, and folders do without.
    # Documented, but not among what the package says that it exports.
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(model)
    except ValueError:
        return False
    return True


def check_adapter(path: str | None) -> None:
    """Check that an adapter is there: mlx-lm looks for it on this machine only.

    Raises:
        ModelError: It is not.
    """
    if path is not None and not os.path.isdir(path):  # noqa: PTH112 - raises nothing
        raise ModelError(path, "expected a folder with an adapter")


def model_folder(model: str, environment: Mapping[str, str], home: Path) -> Path | None:
    """The folder that a model is loaded from; None for a name of the hub that is not in its cache."""
    # Unlike a path's own method this leaves a ~ that nobody knows as it is.
    path = Path(os.path.expanduser(model))  # noqa: PTH111
    snapshots = _snapshots(_hub_cache(environment, home), model)
    try:
        if path.is_dir():
            return path
        complete = [config.parent for config in snapshots.glob("*/config.json")]
        return max(complete, key=lambda folder: folder.stat().st_mtime, default=None)
    except OSError:
        # What may not be looked at is as good as not there.
        return None


def _snapshots(cache: Path, model: str) -> Path:
    """Where the hub's cache has a model's folders."""
    return cache / f"models--{model.replace('/', '--')}" / "snapshots"


def _hub_cache(environment: Mapping[str, str], home: Path) -> Path:
    if cache := environment.get("HF_HUB_CACHE"):
        return Path(cache)
    return Path(environment.get("HF_HOME") or home / ".cache" / "huggingface") / "hub"
