"""`warmd check`: what is wrong with a prompts file, or what it would keep warm."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from warmd.commands.check_report import Report, print_report, to_json
from warmd.commands.options import add_memory_limit, whole_number, with_memory_limit
from warmd.config import expand_home, load_settings
from warmd.errors import UsageError
from warmd.lint import lint_file
from warmd.parser import json_object
from warmd.prompts import InvalidPromptsError, load_document

DESCRIPTION = """\
Check a prompts file; with --model, also show what each entry would take, in tokens and in bytes.
Exit code 0: the file is valid and, with --model, can be kept warm, even if some of it waits for memory.
1: it is not, or the model's state cannot be kept. 2: usage. 3: the model cannot be loaded.
Warnings say what in the texts looks as if it changed from request to request; they change no exit code."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what it takes."""
    parser.add_argument("file", metavar="FILE", nargs="?", help="the file (default: from the config)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--model", metavar="M", help="also count tokens and bytes for this model; its weights are not read"
    )
    add_memory_limit(parser)
    _add_server_flags(parser)


def _add_server_flags(parser: argparse.ArgumentParser) -> None:
    """Those of mlx-lm's server that change tokens or bytes, with its names and defaults."""
    flags = parser.add_argument_group("what the server is started with (as for `warmd serve`)")
    flags.add_argument("--chat-template-args", metavar="JSON", help="arguments for every chat template")
    flags.add_argument("--adapter-path", metavar="DIR", help="trained adapter")
    flags.add_argument("--draft-model", metavar="M", help="model for speculative decoding")
    flags.add_argument(
        "--kv-bits", metavar="N", type=whole_number(1), help="quantise the state to so many bits"
    )
    flags.add_argument("--kv-group-size", metavar="N", type=whole_number(1), default=64, help="(default: 64)")
    flags.add_argument(
        "--quantized-kv-start", metavar="N", type=whole_number(0), default=5000, help="tokens (default: 5000)"
    )
    flags.add_argument(
        "--prefill-step-size", metavar="N", type=whole_number(1), default=2048, help="tokens (default: 2048)"
    )


def run(args: argparse.Namespace) -> int:
    """Check and print; 0 when all is well, 1 when not."""
    settings = with_memory_limit(load_settings(), args.memory_limit)
    template_args = _template_args(args.chat_template_args)
    path = expand_home(args.file or settings.prompts.path)
    report = check_file(path, settings.prompts.max_bytes)
    if args.model and report.document is not None:
        # Imported here: this needs mlx-lm and a tokenizer, which take seconds to import.
        from warmd.commands.rendered import render_document

        rendering = render_document(report.document, args.model, settings, args, template_args)
        report = replace(report, rendering=rendering)
    if args.json:
        print(json.dumps(to_json(report), indent=2))
    else:
        print_report(report)
    return 0 if report.is_ok else 1


def check_file(path: Path, max_bytes: int) -> Report:
    """Load a file and report how that went."""
    try:
        document = load_document(path, max_bytes=max_bytes)
    except InvalidPromptsError as error:
        return Report(path, error.sha256, None, error.errors)
    return Report(
        path, document.sha256, document, (), changing=lint_file(document, datetime.now(), max_bytes)
    )


def _template_args(text: str | None) -> dict[str, Any]:
    try:
        return json_object(text or "{}")
    except ValueError as error:
        raise UsageError(f"--chat-template-args: {error}") from None
