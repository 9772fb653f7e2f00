"""What `warmd bench` shows to people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from warmd.bench.result import HOW, BenchResult, EntryResult, Times
from warmd.memory.size import format_size
from warmd.text import counted, one_line

KNOWN = 64
"""Tokens of the template that even a cold request may find in a cache."""


def report(result: BenchResult) -> RenderableType:
    """The whole report."""
    rounds = counted(result.rounds, "round")
    head = Text(f"{one_line(result.model)}, warmd {result.version}, medians of {rounds}")
    notes = [Text(line) for line in _notes(result)]
    how = [Text(f"{title}: {text}", "dim") for title, text in _how(result)]
    return Group(head, Text(), _table(result), Text(), *notes, Text(), *how)


def _table(result: BenchResult) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("name", overflow="fold")
    titles = ["tokens", "bytes", "cold", "warm", "tail", "edit", "restart"]
    if result.compared_with is not None:
        titles += ["other cold", "warm", "tail"]
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    for entry in result.entries:
        table.add_row(*map(Text, _row(entry, is_compared=result.compared_with is not None)))
    return table


def _row(entry: EntryResult, *, is_compared: bool) -> list[str]:
    size = "-" if entry.kv_bytes is None else format_size(entry.kv_bytes)
    row = [one_line(entry.name), _count(entry.tokens), size, *_times(entry.times)]
    row += [_count(entry.edit_tokens), _count(entry.restart_tokens)]
    return row + _times(entry.other or Times()) if is_compared else row


def _times(times: Times) -> list[str]:
    return [_seconds(each) for each in (times.cold_s, times.warm_s, times.tail_s)]


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:,.0f} ms" if seconds < 2 else f"{seconds:,.1f} s"


def _notes(result: BenchResult) -> list[str]:
    notes = [f"{format_size(result.kv_bytes)} held for all entries"]
    if result.restart_s is not None:
        span = _seconds(result.restart_s)
        notes.append(f"{span} from a restart until all is warm, loading the model included")
    if (found := result.interference) is not None:
        later = f"{_seconds(found.beside_s)} instead of {_seconds(found.idle_s)}"
        met = f"answered while that went on: {found.met} of {counted(result.rounds, 'request')}"
        notes.append(f"a request beside the warming of {one_line(found.entry)}: {later}; {met}")
    for entry in result.entries:
        notes += _entry_notes(entry)
    return notes


def _entry_notes(entry: EntryResult) -> Iterator[str]:
    name = one_line(entry.name)
    if entry.reason is not None:
        yield f"{name} is {entry.state}: {one_line(entry.reason)}"
    for whose, times in (("", entry.times), (" on the other server", entry.other or Times())):
        if (times.cold_cached or 0) > KNOWN:
            found = f"{times.cold_cached:,} tokens in a cache"
            yield f"{name}: cold requests{whose} found up to {found}; start that server anew"


def _how(result: BenchResult) -> list[tuple[str, str]]:
    titles = {"cold_s": "cold", "warm_s": "warm", "tail_s": "tail", "kv_bytes": "bytes"}
    titles |= {"edit_tokens": "edit", "restart_tokens": "restart"}
    titles |= {"interference": "a request beside the warming"}
    without = {"compare"} if result.compared_with is None else set()
    without |= {"interference"} if result.interference is None else set()
    parts = [part for part in HOW if part not in without]
    return [(titles.get(part, part), HOW[part]) for part in parts]
