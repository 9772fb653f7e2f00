"""`warmd logs`: what the daemon has logged, for people."""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from warmd.config import load_settings
from warmd.errors import UsageError, WarmdError
from warmd.logfile import log_file_path

DESCRIPTION = """\
Show the log file and what was rotated out of it, oldest first, in local time. Exit code 0: shown. 1: there is
no log, or it cannot be read."""


def add_parser(subparsers: Any) -> None:
    """Add the command's parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "logs",
        help="show the log",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on with new lines until ^C")
    parser.add_argument("--entry", metavar="NAME", help="only lines about this entry")
    parser.add_argument(
        "--level",
        choices=["debug", "info", "warning", "error"],
        default="debug",
        help="the lowest level to show (default: all)",
    )
    parser.add_argument("-n", "--lines", metavar="N", type=_count, help="only the last N of what is there")
    parser.add_argument("--json", action="store_true", help="print the lines as they are")
    parser.set_defaults(run=run)


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("expected 0 or more")
    return value


_count.__name__ = "whole number"


class NoLogError(WarmdError):
    """There is no log file."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"no log yet at {path}; --follow waits for it")


class UnreadableLogError(WarmdError):
    """The log file cannot be read."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"{error.filename or path}: {error.strerror or error}")


def run(args: argparse.Namespace) -> int:
    """Print, and go on printing."""
    # Imported here: structlog, which makes the pretty lines, takes long to import.
    from warmd.logread.lines import LogReader, rotated
    from warmd.logread.view import Wish, make_view

    path = log_file_path(load_settings().log)
    if path is None:
        raise UsageError("there is no log file: [log] file is empty")
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    view = make_view(Wish(args.entry, args.level), as_json=args.json, is_terminal=is_terminal)
    reader = LogReader(path)
    try:
        if not args.follow and not rotated(path):
            raise NoLogError(path)
        _print(_last(_viewed(reader.lines(), view), args.lines))
        if args.follow:
            _print(_viewed(reader.follow(), view))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnreadableLogError(path, error) from None
    except KeyboardInterrupt:
        # That is how following ends.
        return 0
    return 0


def _viewed(lines: Iterable[bytes], view: Any) -> Iterator[str]:
    return (shown for line in lines if (shown := view(line)) is not None)


def _last(lines: Iterator[str], count: int | None) -> Iterable[str]:
    return lines if count is None else deque(lines, maxlen=count)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, flush=True)
