"""What `warmd check` found, as JSON and as text."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmd.memory.size import format_size
from warmd.prompts import Document, FileError
from warmd.text import counted

if TYPE_CHECKING:
    from warmd.commands.rendered import RenderedEntry, Rendering


@dataclass(frozen=True, slots=True)
class Report:
    """What `warmd check` found.

    Attributes:
        path: The file.
        sha256: Of its bytes, or None when it could not be read.
        document: The accepted document, or None.
        errors: Everything that is wrong with the file.
        rendering: In tokens and bytes, when a model was named and the file is valid.
        changing: What in the file will defeat caching.
    """

    path: Path
    sha256: str | None
    document: Document | None
    errors: tuple[FileError, ...]
    rendering: Rendering | None = None
    changing: tuple[FileError, ...] = ()

    @property
    def warnings(self) -> tuple[FileError, ...]:
        """What is allowed but will not be kept warm, or not be of use."""
        images = (
            FileError(None, None, "$", f"{entry.name}: has an image part, so it cannot be kept warm")
            for entry in (self.document.entries if self.document else ())
            if entry.has_images
        )
        return (*images, *self.changing)

    @property
    def is_ok(self) -> bool:
        """True when the file is valid and everything in it can be kept warm, memory permitting."""
        if self.document is None:
            return False
        if self.rendering is None:
            return True
        return self.rendering.needs.is_warmable and not any(e.problem for e in self.rendering.entries)


def to_json(report: Report) -> dict[str, Any]:
    """The report as `--json` prints it: bytes and tokens as plain numbers, null where they are not known."""
    document = report.document
    found = {
        "ok": report.is_ok,
        "path": str(report.path),
        "sha256": report.sha256,
        "digest": document.digest if document else None,
        "entries": _entries_json(report),
        "errors": [_error_json(error) for error in report.errors],
        "warnings": [_error_json(warning) for warning in report.warnings],
    }
    if report.rendering is not None:
        found["memory"] = _memory_json(report.rendering)
    return found


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
    if report.rendering is not None:
        for entry, rendered in zip(entries, report.rendering.entries, strict=True):
            entry |= _rendered_json(rendered)
    return entries


def _rendered_json(rendered: RenderedEntry) -> dict[str, Any]:
    return {
        "tokens": rendered.tokens,
        "own_tokens": rendered.own,
        "shared_tokens": rendered.shared,
        "kv_bytes": rendered.kv_bytes,
        "fits": rendered.fits,
        "reason": rendered.elsewhere or rendered.shortage,
        "problem": rendered.problem,
        "daily": rendered.is_daily,
        "ignores_tools": rendered.ignores_tools,
    }


def _memory_json(rendering: Rendering) -> dict[str, Any]:
    memory, needs = rendering.memory, rendering.needs
    return {
        "limit": memory.limit if memory.error is None else None,
        "reserve": memory.reserve,
        "process_bytes": rendering.process_bytes,
        "model_bytes": needs.model_bytes,
        "kv_bytes": rendering.kv_bytes,
        "fits": rendering.fits,
        "problem": needs.problem or memory.error,
    }


def print_report(report: Report) -> None:
    """For people: what is wrong goes to stderr as compilers do it, everything else to stdout."""
    for error in report.errors:
        print(f"{report.path}{error.place}: {error.message}{error.where}", file=sys.stderr)
    if report.document is None:
        count = len(report.errors)
        print(counted(count, "error"), file=sys.stderr)
        return
    entries = _entries_json(report)
    if not entries:
        print(f"{report.path}: valid; keeps nothing warm")
        if report.rendering is not None and not report.rendering.needs.is_warmable:
            print(_memory_line(report.rendering, None))
        return
    print(f"{report.path}: valid, {counted(len(entries), 'entry', 'entries')}\n")
    common = _common_shortage(report.rendering)
    print(_table(entries, report.rendering, with_shortages=common is None))
    if report.rendering is not None:
        print("", _memory_line(report.rendering, common), sep="\n")
    for warning in report.warnings:
        if warning.line is None:
            print(f"warning: {warning.message}")
        else:
            print(f"{report.path}{warning.place}: warning: {warning.message}{warning.where}")


_PLAIN = {"name": "name", "priority": "priority", "messages": "messages", "tools": "tools"}
_TOKENS = {"tokens": "tokens", "own_tokens": "own", "shared_tokens": "shared"}
_BYTES = {"kv_bytes": "KV bytes", "fits": "fits"}
_SUMMED = ("tokens", "own_tokens", "shared_tokens", "kv_bytes")


def _table(entries: Sequence[dict[str, Any]], rendering: Rendering | None, *, with_shortages: bool) -> str:
    columns = dict(_PLAIN)
    if rendering is not None:
        columns |= _TOKENS
        columns |= _BYTES if rendering.needs.cost is not None else {}
    rows = [[_cell(key, entry[key]) for key in columns] + [_note(entry, with_shortages)] for entry in entries]
    if rendering is not None:
        sums = {key: sum(entry[key] or 0 for entry in entries) for key in columns if key in _SUMMED}
        sums["name"] = "total"
        rows.append([_cell(key, sums[key]) if key in sums else "" for key in columns] + [""])
    table = [[*columns.values(), ""], *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(columns))]
    return "\n".join(_line(row, widths) for row in table)


def _line(row: list[str], widths: list[int]) -> str:
    cells = [
        row[0].ljust(widths[0]),
        *(cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:], strict=True)),
    ]
    return "  ".join([*cells, row[-1]]).rstrip()


def _cell(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if key == "fits":
        return "yes" if value else "no"
    return format_size(value) if key == "kv_bytes" else str(value)


def _note(entry: dict[str, Any], with_shortages: bool) -> str:
    if entry.get("problem"):
        return f"cannot be kept warm: {entry['problem']}"
    notes = [entry["reason"]] if entry.get("reason") and (with_shortages or entry["fits"] is None) else []
    notes += ["ends where its last user turn begins"] if entry["ends_in_user_turn"] else []
    notes += ["holds the date, warmed anew after midnight"] if entry.get("daily") else []
    notes += ["the chat template leaves its tools out"] if entry.get("ignores_tools") else []
    return "; ".join(notes)


def _common_shortage(rendering: Rendering | None) -> str | None:
    """Why no entry fits, where that is the same for all: told once then."""
    entries = () if rendering is None else rendering.entries
    reasons = {entry.shortage for entry in entries if not entry.problem and not entry.elsewhere}
    return reasons.pop() if len(reasons) == 1 else None


def _memory_line(rendering: Rendering, common_shortage: str | None) -> str:
    memory, needs = rendering.memory, rendering.needs
    if not needs.is_warmable:
        return f"the model is unwarmable: {needs.problem}"
    if needs.model_bytes is None or rendering.kv_bytes is None:
        return needs.problem or ""
    if not rendering.count:
        return "no entry is for this model"
    process = rendering.process_bytes or 0
    model, limit = format_size(needs.model_bytes), format_size(memory.limit)
    besides = f"about {format_size(process)} of the process itself"
    if memory.error is None and memory.limit < needs.model_bytes + process:
        return f"nothing fits: the memory limit of {limit} is smaller than the model of {model} and {besides}"
    if common_shortage is not None:
        return f"nothing fits beside the model of {model} and {besides}: {common_shortage}"
    taken = format_size(needs.model_bytes + rendering.kv_bytes + memory.reserve + process)
    return (
        f"memory: {model} model + {format_size(rendering.kv_bytes)} KV state "
        f"({rendering.fits} of {counted(rendering.count, 'entry', 'entries')}) "
        f"+ {format_size(memory.reserve)} reserve + {besides} = {taken} of {limit}"
    )
