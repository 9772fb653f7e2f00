"""`warmd bench`: what warming is worth with one's own model and prompts."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING

from warmd.commands.options import add_api_key, add_prompts, whole_number
from warmd.config import expand_home, load_settings
from warmd.errors import UsageError, WarmdError
from warmd.prompts import InvalidPromptsError, load_document

if TYPE_CHECKING:
    from warmd.bench.measure import Order
    from warmd.bench.result import BenchResult
    from warmd.engines.http.server import ChatServer

DESCRIPTION = """\
Start a server of its own with a model and a copy of a prompts file, and measure for each entry: time to first
token cold, warm, and of the user's words alone; tokens prefilled for an edit and for a restart; bytes held;
and what a live request loses to warming. Your prompts file and a daemon that runs are left alone. Flags of
mlx_lm.server are accepted and passed on; a server of vllm-mlx can only be what it is compared with. What is
going on is told on standard error."""
WIDE = 4000
OWN = {"--demo", "--give-up", "--log-level", "--port", "--prompt-cache-size"}
"""Flags of `warmd serve` without which the server would not be what is measured, or could not be followed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what it takes."""
    parser.add_argument("--model", metavar="M", required=True, help="model folder or Hugging Face name")
    add_prompts(parser)
    parser.add_argument("--rounds", metavar="N", type=whole_number(1), default=5, help="(default: 5)")
    parser.add_argument("--json", action="store_true", help="print JSON, in seconds and bytes")
    parser.add_argument("--compare", metavar="URL", help="send the same requests to this server, too")
    parser.add_argument("--compare-model", metavar="M", help="which of its models, where it has several")
    add_api_key(parser, "that server's")
    parser.set_defaults(takes_more=True)


def run(args: argparse.Namespace, more: list[str]) -> int:
    """Measure and print."""
    _check_flags(args, {flag.partition("=")[0] for flag in more})
    settings = load_settings()
    path = expand_home(args.prompts or settings.prompts.path).absolute()
    try:
        document = load_document(path, max_bytes=settings.prompts.max_bytes)
    except InvalidPromptsError as error:
        what = f"is wrong: `warmd check {path}` says what" if path.exists() else "there is no such file"
        raise WarmdError(f"{path}: {what}") from error
    # Imported here: the event loop and the HTTP client take long to import.
    import anyio

    from warmd.bench.errors import NothingToMeasureError
    from warmd.bench.measure import Order

    if not document.entries:
        raise NothingToMeasureError([])

    # All end the server that was started, too. Shells have SIGINT ignored for what runs in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: signal.raise_signal(signal.SIGINT))
    model = os.path.expanduser(args.model)  # noqa: PTH111 - a hub name is no path
    order = Order(model, document.entries, args.rounds, more, say=_say)
    result = anyio.run(partial(_measure, order, args))
    print(json.dumps(result.as_json(), indent=2) if args.json else _text(result))
    return 0


def _check_flags(args: argparse.Namespace, more: set[str]) -> None:
    """Refuse what makes no sense.

    Raises:
        UsageError: Says what.
    """
    if "--engine" in more:
        raise UsageError(
            "--engine: bench measures mlx-lm's server; a running one of vllm-mlx can be compared with it"
        )
    for flag in sorted(OWN & more):
        raise UsageError(f"{flag}: bench chooses it for the server that it starts")
    other = {
        "--compare-model": args.compare_model,
        "--api-key-env": args.api_key_env,
        "--api-key-file": args.api_key_file,
    }
    for flag, value in other.items():
        if value is not None and args.compare is None:
            raise UsageError(f"{flag}: it is for the server of --compare, which is not given")


async def _measure(order: Order, args: argparse.Namespace) -> BenchResult:
    from dataclasses import replace

    from warmd.bench.measure import measure
    from warmd.engines.http.address import parse_base_url, read_api_key
    from warmd.engines.http.server import ChatServer

    if args.compare is None:
        return await measure(order)
    key = read_api_key(args.api_key_env, args.api_key_file)
    async with ChatServer(parse_base_url(args.compare, "--compare"), api_key=key) as other:
        model = await _model_of(other, args.compare_model)
        return await measure(replace(order, other=(other, model)))


async def _model_of(other: ChatServer, wanted: str | None) -> str:
    """Which model to ask the other server for.

    Raises:
        AskedServerError: It cannot be talked to, or does not say what it has.
        UsageError: The model has to be named, or it has no such model.
    """
    from warmd.bench.errors import AskedServerError
    from warmd.engines.http.engine import choose_model
    from warmd.engines.http.server import AnswerError, UnreachableError

    try:
        model, problem = choose_model(await other.models(), wanted)
    except (UnreachableError, AnswerError) as error:
        if wanted is not None and isinstance(error, AnswerError) and not error.is_refusal:
            # As for a sidecar: some cannot list their models.
            return wanted
        raise AskedServerError(other.base_url, _in_flags_of_ours(error)) from None
    if problem is not None:
        raise UsageError(f"--compare {other.base_url}: {_in_flags_of_ours(problem)}")
    return model


def _in_flags_of_ours(problem: object) -> str:
    """A sidecar's flag has another name here."""
    return str(problem).replace("--model", "--compare-model")


def _say(line: str) -> None:
    if sys.stderr is not None:
        print(line, file=sys.stderr, flush=True)


def _text(result: BenchResult) -> str:
    """The report for this output: folded for a terminal, plain lines for anything else."""
    from rich.console import Console

    from warmd.bench.report import report

    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    console = Console() if is_terminal else Console(width=WIDE, color_system=None)
    with console.capture() as capture:
        console.print(report(result))
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
