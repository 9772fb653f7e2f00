"""Loads a model's request path without its weights, for `warmd check --model`."""

from __future__ import annotations

from typing import Any

from mlx_lm import utils

from warmd.engines.mlx_lm.hub import hub_reason
from warmd.engines.mlx_lm.render import RequestPath
from warmd.errors import CannotStartError


class TokenizerError(CannotStartError):
    """The tokenizer cannot be loaded."""

    def __init__(self, model: str, error: Exception) -> None:
        problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
        super().__init__(f"cannot load the tokenizer of {model!r}: {hub_reason(problem)[:400]}")


def load_request_path(model: str, chat_template_args: dict[str, Any] | None = None) -> RequestPath:
    """The request path of a model folder or Hugging Face name, from its tokenizer files only.

    Raises:
        TokenizerError: There is no such model, or its tokenizer cannot be loaded.
    """
    try:
        tokenizer = utils.load_tokenizer(model)
    # transformers and the hub raise many kinds; none of them has seen a prompt.
    except Exception as error:  # noqa: BLE001
        raise TokenizerError(model, error) from None
    return RequestPath(tokenizer, chat_template_args or {})
