"""What is said of a model that is neither here nor can be had from the hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmd.engines.mlx_lm.hub import hub_reason, is_here, missing_model
from warmd.engines.model_folder import ModelError, check_adapter

NOT_HERE = "not a folder, not in the local cache, and cannot be downloaded"


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (
            "LocalEntryNotFoundError: Got: ConnectError: [Errno -2] Name or service not known An error …",
            f"{NOT_HERE} (no connection to the hub)",
        ),
        (
            "LocalEntryNotFoundError: Not on the local disk and outgoing traffic has been disabled.",
            f"{NOT_HERE} (HF_HUB_OFFLINE is set)",
        ),
        (
            "RepositoryNotFoundError: 401 Client Error. (Request ID: Root=1-6) Repository Not Found for url",
            f"{NOT_HERE} (the hub has no such model, or it is private)",
        ),
        (
            "GatedRepoError: 403 Client Error.",
            f"{NOT_HERE} (it is gated: ask for access on the hub, and log in)",
        ),
        ("ValueError: Model type foo not supported.", "ValueError: Model type foo not supported."),
    ],
)
def test_the_reason_is_a_few_words_and_what_is_no_matter_of_the_hub_stays(
    problem: str, expected: str
) -> None:
    assert hub_reason(problem) == expected


def test_the_model_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    here = str(tmp_path)
    assert (is_here(here), is_here("no/such-model")) == (True, False)
    assert missing_model(here, None) == here
    assert missing_model(here, "no/such-draft") == "no/such-draft"
    assert missing_model("no/such-model", "no/such-draft") == "no/such-model"


def test_an_adapter_that_is_not_there_is_named(tmp_path: Path) -> None:
    check_adapter(None)
    check_adapter(str(tmp_path))
    with pytest.raises(ModelError, match=r"^cannot load the model '/nope': expected a folder"):
        check_adapter("/nope")
