"""What `warmd store list` shows to people."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from warmd.disk.record import Record
from warmd.memory.size import format_size
from warmd.text import counted, one_line

KEY_DIGITS = 12
"""Hex digits of a hash that are shown, as in `warmd status`."""
WIDE = 4000
"""Columns that no report needs: a line of a file is not folded."""


def print_records(records: Sequence[Record], folder: Path, now: float, lag: float | None = None) -> None:
    """Print a table.

    Args:
        records: What there is.
        folder: Where.
        now: Seconds since the epoch.
        lag: Seconds within which a running daemon may want a file without having marked it; None without one.
    """
    if not records:
        print(f"{folder}: nothing is on disk")
        return
    # Imported here: programs that read JSON do without, and it takes as long as all the rest.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("model", overflow="fold")
    table.add_column("prefix", no_wrap=True)
    for title in ("tokens", "bytes", "wanted"):
        table.add_column(title, justify="right", no_wrap=True)
    for record in records:
        cells = (
            one_line(record.model),
            record.name[:KEY_DIGITS],
            f"{record.start:,} to {record.end:,}",
            format_size(record.nbytes),
            _wanted(max(0.0, now - record.wanted_at), lag),
        )
        table.add_row(*map(Text, cells))
    size = format_size(sum(record.nbytes for record in records))
    table.add_row(Text("total"), Text(), Text(counted(len(records), "file")), Text(size), Text(), style="dim")
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    console = Console() if is_terminal else Console(width=WIDE, color_system=None)
    with console.capture() as capture:
        console.print(table)
    print(str(folder))
    print("\n".join(line.rstrip() for line in capture.get().splitlines()))
    if lag is not None:
        print(f"{_wanted(0.0, lag)}: now, or lately; the running daemon marks what it wants no more often")


def _wanted(age: float, lag: float | None) -> str:
    from warmd.commands.status_report import format_seconds

    return f"within {format_seconds(lag)}" if lag is not None and age <= lag else f"{format_seconds(age)} ago"
