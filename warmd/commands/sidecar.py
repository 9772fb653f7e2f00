"""`warmd sidecar`: the daemon beside a server that it cannot be part of."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from warmd.commands.options import add_api_key, add_prompts
from warmd.config import expand_home, load_settings

DESCRIPTION = """\
Keep the prompts file's entries warm in a server that speaks OpenAI's chat interface over HTTP: LM Studio,
llama.cpp's server, Ollama, oMLX, vllm-mlx, mlx_lm.server, ... It sends each entry as a chat request for one
token, one at a time, again after a restart of the server or with another model, and, where the server tells
how much of a prompt came from its cache, proves that it did."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what it takes."""
    parser.add_argument("--base-url", metavar="URL", required=True, help="such as http://localhost:1234/v1")
    add_prompts(parser)
    parser.add_argument("--model", metavar="M", help="which of the server's models, where it has several")
    add_api_key(parser, "the server's")
    parser.add_argument(
        "--log-level",
        type=str.upper,
        choices=["DEBUG", "INFO", "WARNING", "ERROR"],
        help="the lowest level that is logged (default: from the config)",
    )


def run(args: argparse.Namespace) -> int:
    """Warm until stopped."""
    # Imported here: structlog and the HTTP client take longer to import than `warmd check` takes in all.
    from warmd import foreign
    from warmd.engines.http.address import parse_base_url, read_api_key
    from warmd.logs import open_log
    from warmd.sidecar import Sidecar
    from warmd.signals import hold_signals

    settings = load_settings()
    base_url = parse_base_url(args.base_url)
    api_key = read_api_key(args.api_key_env, args.api_key_file)
    prompts = expand_home(args.prompts or settings.prompts.path).absolute()
    level: Any = (args.log_level or settings.log.level).lower()
    log = open_log(sys.stderr, settings, level=level)
    hold_signals(log)
    foreign.capture(log, log.level)
    foreign.capture_stderr(log)
    return Sidecar(prompts, base_url, args.model, api_key, settings, log).run()
