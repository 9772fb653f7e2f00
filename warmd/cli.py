"""The command line: finds the command, runs it, and turns our errors into one line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, TextIO

from warmd import __version__
from warmd.commands.say import discard_output
from warmd.errors import UnwritableOutputError, UsageError, WarmdError
from warmd.parser import CommandParser
from warmd.text import printable

if TYPE_CHECKING:
    from warmd.events import Event

COMMANDS = {
    "serve": "serve a model and keep prompts warm",
    "sidecar": "keep prompts warm in another server, over HTTP",
    "check": "check a prompts file",
    "status": "show what is warm",
    "explain": "show why requests missed an entry",
    "capture": "make an entry out of what an agent sends",
    "rewarm": "free entries and warm them again",
    "pause": "warm nothing for now",
    "resume": "go on warming",
    "reload": "read the prompts file now",
    "store": "show, check or remove warm state on disk",
    "install": "run as a Mac service",
    "uninstall": "remove the Mac service",
    "restart": "restart the Mac service",
    "logs": "show the log",
    "doctor": "find out what is wrong",
    "completion": "print a completion script for a shell",
    "bench": "measure what warming is worth with your model and prompts",
    "schema": "print the JSON schema of the prompts file",
}
"""Each is a module of `warmd.commands`, imported only where wanted, and what `warmd --help` says of it."""


def make_parser(wanted: Collection[str] = COMMANDS) -> argparse.ArgumentParser:
    """A parser that knows every command by name, and what some of them take.

    Args:
        wanted: What the others import costs several times what `check` takes.
    """
    parser = CommandParser(
        prog="warmd", description="Keeps the prompts of LLM agents warm in an MLX server.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"warmd {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command, summary in COMMANDS.items():
        command_parser = subparsers.add_parser(
            command,
            help=summary,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            # --prompt-cache-size, which is mlx-lm's, would be taken for --prompts.
            allow_abbrev=False,
        )
        if command in wanted:
            module = importlib.import_module(f"warmd.commands.{command}")
            command_parser.description = module.DESCRIPTION
            command_parser.set_defaults(run=module.run, parser=command_parser)
            module.add_arguments(command_parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Returns:
        0 ok, 1 the check failed, 2 usage, 3 cannot start, 4 no daemon.
    """
    _allow_every_character()
    if os.environ.get("HOME") == "":
        # As good as none, which is looked up elsewhere; Python would take / for it.
        del os.environ["HOME"]
    argv = sys.argv[1:] if argv is None else argv
    try:
        if argv[:1] in (["serve"], ["sidecar"]):
            # Imported here: the other commands do without.
            from warmd.signals import hold_signals

            hold_signals()
            return _run_long(argv)
        return _run(argv)
    except WarmdError as error:
        _tell(error)
        return error.exit_code


def _run_long(argv: Sequence[str]) -> int:
    """A command that runs until it is told to stop, perhaps as a service."""
    # Imported here: the other commands do without.
    from warmd.crash.starts import counting, is_supervised

    if sys.stderr is None:
        # Started with standard error closed: mlx-lm and others write there without asking.
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - for as long as we live
    if not is_supervised(argv, os.environ):
        return _run(argv)
    # Of what is printed there later, the log only tells how much.
    stderr = sys.stderr
    return counting(lambda: _run(argv), lambda event: _log(stderr, event), _tell)


def _log(stderr: TextIO, event: Event) -> None:
    """Log an event when there may be no settings."""
    from warmd.config import load_settings
    from warmd.logs import open_log

    try:
        log = open_log(stderr, load_settings())
    except UsageError:
        log = open_log(stderr)
    log(event)


def _tell(error: WarmdError) -> None:
    if not error.is_told:
        # Settings tell all that is wrong with them, in a line each.
        lines = (printable(line) for line in str(error).split("\n"))
        print(*(f"warmd: {line}" for line in lines), sep="\n", file=sys.stderr)


def _run(argv: Sequence[str]) -> int:
    try:
        # Importing a command takes long enough for a ctrl-C.
        parser = make_parser(_wanted(argv))
        args, more = parser.parse_known_args(argv)
        if getattr(args, "takes_more", False):
            return int(args.run(args, more))
        if more:
            args.parser.error(f"unrecognized arguments: {' '.join(more)}")
        return _print_all(args)
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        discard_output()
        return 0
    except KeyboardInterrupt:
        return 130


def _wanted(argv: Sequence[str]) -> Collection[str]:
    """The command that a command line is about; none where it asks for something else, or is wrong."""
    return [word for word in argv if not word.startswith("-")][:1]


def _print_all(args: argparse.Namespace) -> int:
    try:
        code = int(args.run(args))
        # There is no file object when standard output is closed.
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        raise
    # These commands translate what goes wrong with the files they read.
    except OSError as error:
        discard_output()
        raise UnwritableOutputError(error) from None


def _allow_every_character() -> None:
    # A terminal that cannot show a name should not turn a good file into a traceback.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
