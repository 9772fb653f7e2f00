"""The flags of `vllm-mlx serve`, as one types them behind `warmd serve --engine vllm-mlx`."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from vllm_mlx import cli

from warmd.errors import UsageError
from warmd.parser import ServerParser


class OursError(UsageError):
    """A flag of vllm-mlx that ours takes the place of."""

    def __init__(self) -> None:
        super().__init__("--warm-prompts: with warmd the prompts file is given as --prompts")


class NoModelError(UsageError):
    """Nothing says what to serve."""

    def __init__(self) -> None:
        super().__init__(
            "serve needs --model M (a model folder or Hugging Face name), or --models-config FILE"
        )


def parse_flags(flags: Sequence[str]) -> Any:
    """Parse what may follow ``vllm-mlx serve``, with our words for what is wrong with it.

    Raises:
        UsageError: A flag is ours, or nothing says what to serve.
        SystemExit: From the parser.
    """
    before = cli.argparse
    cli.argparse = SimpleNamespace(
        **{**vars(argparse), "ArgumentParser": functools.partial(ServerParser, prog="warmd")}
    )
    try:
        parser = cli.create_parser()
    finally:
        cli.argparse = before
    # It is this one that tells of flags which nobody knows.
    parser.prog = "warmd serve"
    args = parser.parse_args(["serve", *flags])
    if args.warm_prompts:
        raise OursError
    if not args.model and not args.models_config:
        raise NoModelError
    return args
