"""What a model and its state would take, without reading its weights, for `warmd check --model`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlx.utils import tree_flatten
from mlx_lm import utils

from warmd.engines.mlx_lm.measure import UnkeepableError, check_quantising, measure, trace
from warmd.engines.model_folder import ModelError, check_model_folder
from warmd.memory.cost import Cost
from warmd.prompts.validate import kind


class UnknownBytesError(Exception):
    """The bytes cannot be told, although the model may be all right; `str` of it is a reason in one line."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a model would take.

    Attributes:
        model_bytes: Its weights, those of adapter and draft model included.
        cost: Of its state.
    """

    model_bytes: int
    cost: Cost


def estimate(model: str, chunk_tokens: int, args: Any) -> Estimate:
    """Trace a model whose weights stay on the disk: mlx knows every shape before anything is read.

    Args:
        model: A folder, or a Hugging Face name; what the local cache lacks is not downloaded.
        chunk_tokens: Tokens of one warming step.
        args: The server's flags.

    Raises:
        UnknownBytesError: Its weights are not here, or it is of a kind that mlx-lm does not know.
        ModelError: It, its adapter or its draft model cannot be loaded.
        UnkeepableError: Its state cannot be kept warm.
        QuantisingError: See `check_quantising`.
    """
    check_quantising(args)
    models = [_load(model, "weights", args.adapter_path)]
    if args.draft_model is not None:
        check_model_folder(args.draft_model, needs_weights=False)
        models.append(_load(args.draft_model, "the draft model's weights"))
    size = sum(array.nbytes for each in models for _, array in tree_flatten(each.parameters()))
    try:
        return Estimate(size, measure(trace(*models), chunk_tokens, args))
    except UnkeepableError:
        raise
    except Exception as error:  # noqa: BLE001 - a model may raise anything; it has seen no prompt
        raise UnknownBytesError(f"the model cannot be traced ({_one_line(error)})") from None


def check_config(model: str, folder: Path) -> dict[str, Any]:
    """Read a model folder's config.json.

    Raises:
        ModelError: It cannot be read, or is no JSON object.
    """
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except OSError as error:
        raise ModelError(model, f"config.json: {error.strerror}") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ModelError(model, f"config.json is not valid JSON: {error.msg} ({where})") from None
    except UnicodeDecodeError as error:
        what = f"expected UTF-8, found another encoding at byte {error.start}"
        raise ModelError(model, f"config.json: {what}") from None
    except RecursionError:
        raise ModelError(model, "config.json is nested too deeply") from None
    if not isinstance(config, dict):
        raise ModelError(model, f"config.json: expected a JSON object, found {kind(config)}")
    return config


def _load(model: str, weights: str, adapter_path: str | None = None) -> Any:
    folder = _find(model, weights)
    if "model_file" in check_config(model, folder):
        # Whoever asks what a prompt would take has not agreed to run what came with a model.
        raise UnknownBytesError("the model brings code of its own, which is not run here")
    try:
        loaded, _ = utils.load_model(folder, lazy=True, get_model_classes=_find_classes)
    except UnknownBytesError:
        raise
    except Exception as error:  # noqa: BLE001 - mlx-lm raises many kinds; none of them has seen a prompt
        raise ModelError(model, _one_line(error)) from None
    if adapter_path is None:
        return loaded
    try:
        return utils.load_adapters(loaded, adapter_path)
    except Exception as error:  # noqa: BLE001 - as above
        raise ModelError(adapter_path, _one_line(error)) from None


def _find(model: str, weights: str) -> Path:
    """The folder that a model's weights are in."""
    missing = UnknownBytesError(f"{weights} not found")
    folder = Path(model)
    if not folder.is_dir():
        try:
            folder = utils.hf_repo_to_path(model)
        # Not there, not complete, no such name: what the hub's client raises differs by version.
        except Exception:  # noqa: BLE001
            raise missing from None
    # The files that mlx-lm loads.
    if not any(folder.glob("model*.safetensors")):
        raise missing
    return folder


def _find_classes(config: dict[str, Any]) -> Any:
    if not isinstance(config.get("model_type"), str):
        raise ValueError("config.json has no model_type")
    try:
        return utils._get_classes(config)
    # What mlx-lm turns the failed import into.
    except ValueError:
        raise UnknownBytesError(f"mlx-lm does not know the architecture {config['model_type']!r}") from None


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]
