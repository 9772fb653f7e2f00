"""`warmd logs`: what the daemon has logged, for people."""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from warmd.commands.options import whole_number
from warmd.commands.say import discard_output
from warmd.config import load_settings
from warmd.errors import UnwritableOutputError, UsageError, WarmdError
from warmd.logfile import log_file_path
from warmd.nearest import nearest_of

DESCRIPTION = """\
Show the log file and what was rotated out of it, oldest first, in local time. Exit code 0: shown, also where
no line is wanted. 1: there is no log, it cannot be read, or it knows no entry of that name."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what it takes."""
    parser.add_argument("-f", "--follow", action="store_true", help="go on with new lines until ^C")
    parser.add_argument("--entry", metavar="NAME", help="only lines about this entry")
    parser.add_argument(
        "--level",
        type=str.lower,
        choices=["debug", "info", "warning", "error"],
        default="debug",
        help="the lowest level to show (default: all)",
    )
    parser.add_argument(
        "-n", "--lines", metavar="N", type=whole_number(0), help="only the last N of what is there"
    )
    parser.add_argument("--json", action="store_true", help="print the lines as they are")


class NoLogError(WarmdError):
    """There is no log file."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"no log yet at {path}; --follow waits for it")


class UnreadableLogError(WarmdError):
    """The log file cannot be read."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"{error.filename or path}: {error.strerror or error}")


class UnknownToLogError(WarmdError):
    """No line is about such an entry."""

    def __init__(self, name: str, path: Path, known: Collection[str]) -> None:
        nearest = nearest_of(name, sorted(known))
        hint = f"; the nearest known one is {nearest!r}" if nearest is not None else ""
        super().__init__(f"no line in {path} is about an entry {name!r}{hint}")


def run(args: argparse.Namespace) -> int:
    """Print, and go on printing."""
    # Imported here: structlog, which makes the pretty lines, takes long to import.
    from warmd.logread.lines import LogReader, rotated
    from warmd.logread.view import View, Wish

    path = log_file_path(load_settings().log)
    if path is None:
        raise UsageError("there is no log file: [log] file is empty")
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    view = View.of(Wish(args.entry, args.level), as_json=args.json, is_terminal=is_terminal)
    reader = LogReader(path)
    try:
        if not args.follow and not rotated(path):
            raise NoLogError(path)
        count = _print(_last(view.shown(reader.lines()), args.lines))
        if args.follow:
            _print(view.shown(reader.follow()))
        elif count == 0 and args.lines != 0:
            _tell_nothing(args, path, view.entries)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnreadableLogError(path, error) from None
    except KeyboardInterrupt:
        # That is how following ends.
        return 0
    return 0


def _tell_nothing(args: argparse.Namespace, path: Path, entries: Collection[str]) -> None:
    """Nobody is to take a misspelled name for an entry to which nothing happens.

    Raises:
        UnknownToLogError: The log has no such entry.
    """
    if args.entry is not None and args.entry not in entries:
        raise UnknownToLogError(args.entry, path, entries)
    level = f" of level {args.level} or above" if args.level != "debug" else ""
    about = f" about {args.entry!r}" if args.entry is not None else ""
    print(f"no lines{about}{level} in {path}", file=sys.stderr)


def _last(lines: Iterator[str], count: int | None) -> Iterable[str]:
    return lines if count is None else deque(lines, maxlen=min(count, sys.maxsize))


def _print(lines: Iterable[str]) -> int:
    """Print lines; how many there were.

    Raises:
        UnwritableOutputError: Nobody takes them. That the log cannot be read is something else.
    """
    count = 0
    for count, line in enumerate(lines, 1):  # noqa: B007 - the last number is the count
        try:
            print(line, flush=True)
        except BrokenPipeError:
            raise
        except OSError as error:
            discard_output()
            raise UnwritableOutputError(error) from None
    return count
