"""`warmd check`: what is wrong with a prompts file, or what it would keep warm."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmd.config import expand_home, load_settings
from warmd.errors import UsageError
from warmd.prompts import Document, FileError, InvalidPromptsError, load_document

if TYPE_CHECKING:
    from warmd.commands.rendered import RenderedEntry


@dataclass(frozen=True, slots=True)
class Report:
    """What `warmd check` found.

    Attributes:
        path: The file.
        sha256: Of its bytes, or None when it could not be read.
        document: The accepted document, or None.
        errors: Everything that is wrong with the file.
        rendered: One item an entry when a model was named, else empty.
    """

    path: Path
    sha256: str | None
    document: Document | None
    errors: tuple[FileError, ...]
    rendered: tuple[RenderedEntry, ...] = ()

    @property
    def warnings(self) -> tuple[FileError, ...]:
        """What is allowed but will not be kept warm."""
        return tuple(
            FileError(None, None, "$", f"{entry.name}: has an image part, so it cannot be kept warm")
            for entry in (self.document.entries if self.document else ())
            if entry.has_images
        )

    @property
    def is_ok(self) -> bool:
        """True when the file is valid and everything in it could be rendered."""
        return self.document is not None and not any(entry.problem for entry in self.rendered)


def add_parser(subparsers: Any) -> None:
    """Add the command's parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "check",
        help="check a prompts file",
        description="Check a prompts file; with --model, also show which tokens each entry would keep warm.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", nargs="?", help="the file (default: from the config)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--model", metavar="M", help="also render with this model's tokenizer; its weights are not loaded"
    )
    parser.add_argument(
        "--chat-template-args", metavar="JSON", help="what the server is given as --chat-template-args"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check and print; 0 when all is well, 1 when not."""
    settings = load_settings()
    template_args = _template_args(args.chat_template_args)
    path = expand_home(args.file or settings.prompts.path)
    report = check_file(path, settings.prompts.max_bytes)
    if args.model and report.document is not None:
        # Imported here: this needs mlx-lm and a tokenizer, which take seconds to import.
        from warmd.commands.rendered import render_document

        report = replace(report, rendered=render_document(report.document, args.model, template_args))
    if args.json:
        print(json.dumps(to_json(report), indent=2))
    else:
        _print(report)
    return 0 if report.is_ok else 1


def check_file(path: Path, max_bytes: int) -> Report:
    """Load a file and report how that went."""
    try:
        document = load_document(path, max_bytes=max_bytes)
    except InvalidPromptsError as error:
        return Report(path, error.sha256, None, error.errors)
    return Report(path, document.sha256, document, ())


def to_json(report: Report) -> dict[str, Any]:
    """The report as `--json` prints it."""
    document = report.document
    entries = _entries_json(report) if document else []
    return {
        "ok": report.is_ok,
        "path": str(report.path),
        "sha256": report.sha256,
        "digest": document.digest if document else None,
        "entries": entries,
        "errors": [_error_json(error) for error in report.errors],
        "warnings": [_error_json(warning) for warning in report.warnings],
    }


def _error_json(error: FileError) -> dict[str, Any]:
    return {"line": error.line, "column": error.column, "path": error.path, "message": error.message}


def _entries_json(report: Report) -> list[dict[str, Any]]:
    entries = [
        {
            "name": entry.name,
            "priority": entry.priority,
            "messages": len(entry.messages),
            "tools": len(entry.tools) if entry.tools is not None else 0,
            "ends_in_user_turn": entry.ends_in_user_turn,
        }
        for entry in (report.document.entries if report.document else ())
    ]
    for entry, rendered in zip(entries, report.rendered, strict=False):
        entry |= {"tokens": rendered.tokens, "shared": rendered.shared, "problem": rendered.problem}
    return entries


def _print(report: Report) -> None:
    for error in report.errors:
        place = f":{error.line}:{error.column}" if error.line is not None else ""
        print(f"{report.path}{place}: {error.message} (at {error.path})", file=sys.stderr)
    if report.document is None:
        count = len(report.errors)
        print(f"{count} {'error' if count == 1 else 'errors'}", file=sys.stderr)
        return
    entries = _entries_json(report)
    if not entries:
        print(f"{report.path}: valid; keeps nothing warm")
        return
    print(f"{report.path}: valid, {len(entries)} {'entry' if len(entries) == 1 else 'entries'}\n")
    print(_table(entries, with_tokens=bool(report.rendered)))
    for warning in report.warnings:
        print(f"warning: {warning.message}")


def _table(entries: Sequence[dict[str, Any]], *, with_tokens: bool) -> str:
    head = ["name", "priority", "messages", "tools"] + (["tokens", "shared"] if with_tokens else [])
    rows = [[_cell(entry[key]) for key in head] + [_note(entry)] for entry in entries]
    table = [[*head, ""], *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    return "\n".join(_line(row, widths) for row in table)


def _line(row: list[str], widths: list[int]) -> str:
    cells = [
        row[0].ljust(widths[0]),
        *(cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:], strict=True)),
    ]
    return "  ".join([*cells, row[-1]]).rstrip()


def _cell(value: Any) -> str:
    return "-" if value is None else str(value)


def _note(entry: dict[str, Any]) -> str:
    if entry.get("problem"):
        return f"cannot be kept warm: {entry['problem']}"
    return "ends where its last user turn begins" if entry["ends_in_user_turn"] else ""


def _template_args(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    # Nesting too deep to parse is no ValueError.
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UsageError("--chat-template-args: expected a JSON object")
    return value
