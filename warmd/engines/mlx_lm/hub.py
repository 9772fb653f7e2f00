"""What is wrong with a model that was to come from the Hugging Face hub, in a few words."""

from __future__ import annotations

from pathlib import Path

from mlx_lm import utils

from warmd.engines.model_folder import NOT_HERE

# Type of the exception, something in its message, and what they mean; the first that fits.
_REASONS = (
    ("GatedRepoError", "", "it is gated: ask for access on the hub, and log in"),
    ("RepositoryNotFoundError", "", "the hub has no such model, or it is private"),
    ("RevisionNotFoundError", "", "the hub has no such model, or it is private"),
    ("OfflineModeIsEnabled", "", "HF_HUB_OFFLINE is set"),
    ("LocalEntryNotFoundError", "outgoing traffic has been disabled", "HF_HUB_OFFLINE is set"),
    ("LocalEntryNotFoundError", "", "no connection to the hub"),
    ("ConnectError", "", "no connection to the hub"),
    ("ConnectTimeout", "", "no connection to the hub"),
    ("ConnectionError", "", "no connection to the hub"),
)


def hub_reason(problem: str) -> str:
    """Why a model is not there, for people; any other problem as it is.

    Args:
        problem: What was raised: its type, a colon and its message.
    """
    for kind, part, reason in _REASONS:
        if problem.startswith(f"{kind}: ") and part in problem:
            return f"{NOT_HERE} ({reason})"
    return problem


def missing_model(model: str, draft_model: str | None) -> str:
    """Of a model and its draft model, the one that is not on this machine; the model itself if both are."""
    if draft_model is not None and is_here(model) and not is_here(draft_model):
        return draft_model
    return model


def is_here(model: str) -> bool:
    """True for a folder, and for a name whose files are in the hub's cache."""
    if Path(model).is_dir():
        return True
    try:
        utils.hf_repo_to_path(model)
    # Not there, not complete, no such name: what the hub's client raises differs by version.
    except Exception:  # noqa: BLE001
        return False
    return True
