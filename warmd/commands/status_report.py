"""What `warmd status` shows to people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from warmd.commands.wrong_file import consequence, error_lines, is_missing
from warmd.memory.size import format_size
from warmd.text import counted, one_line

Json = dict[str, Any]

BAR_CELLS = 30
SHOWN_ERRORS = 5
SHORTEST_PATH = 10
"""Cells; where there are fewer, a path is folded and not shortened."""
SHOWN_SUGGESTIONS = 5
_STYLES = {
    "warm": "green",
    "warming": "cyan",
    "deferred": "yellow",
    "volatile": "yellow",
    "failed": "red",
    "unwarmable": "red",
    "stored_not_served": "red",
    "quarantined": "red",
}
_PRESSURE = {2: "warning", 4: "critical"}


def report(found: Json, now: float) -> RenderableType:
    """The whole report.

    Args:
        found: `warmd.status.status_json`'s.
        now: Seconds since the epoch.
    """
    lines: list[RenderableType] = [*_head(found, now), *_memory(found["memory"]), *_disk(found["disk"])]
    lines += _progress(found["entries"])
    parts: list[RenderableType] = [*lines, Text()]
    parts.append(_table(found, now) if found["entries"] else Text("nothing is to be kept warm"))
    notes = [*_near_misses(found["totals"]["near_misses"]), *_suggestions(found["suggestions"])]
    return Group(*parts, *([Text(), *notes] if notes else []))


@dataclass(frozen=True, slots=True)
class PathLine:
    """A line that begins with a path: where it is too wide, the beginning of the path is left out.

    Attributes:
        path: What may be shortened.
        rest: What may not.
        style: Of the whole line.
    """

    path: str
    rest: str
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """For rich: the line in its final width."""
        room = options.max_width - cell_len(self.rest)
        path = self.path
        if room >= SHORTEST_PATH and cell_len(path) > room:
            while cell_len(path) > room - 1:
                path = path[1:]
            path = f"…{path}"
        yield Text(path + self.rest, self.style)


def _head(found: Json, now: float) -> Iterator[RenderableType]:
    server = found["server"]
    at = f" at {one_line(server['url'])}" if server is not None else ""
    model = one_line(found["model"]) if found["model"] else "no model is loaded" if not at else "no model"
    up = format_seconds(found["uptime_s"])
    yield PathLine(model, f"{at} (warmd {found['version']}, pid {found['pid']}, up {up})")
    if server is not None and server["problem"] is not None:
        yield Text(f"nothing can be warmed there: {one_line(server['problem'])}", "red")
    if found["paused"]:
        yield Text("paused: nothing is warmed until `warmd resume`", "yellow")
    document = found["document"]
    path = one_line(document["path"])
    if not document["errors"]:
        generation = f"generation {document['accepted']}" if document["accepted"] else "not read yet"
        yield PathLine(path, f": {generation}")
    elif is_missing(document):
        yield PathLine(path, f": there is no such file, {consequence(document)} until there is", "yellow")
    else:
        yield PathLine(path, f": the file is wrong, {consequence(document)}", "red")
        lines = error_lines(document)
        yield from (Text(f"  {line}") for line in lines[:SHOWN_ERRORS])
        if len(lines) > SHOWN_ERRORS:
            yield Text(f"  and {len(lines) - SHOWN_ERRORS} more")
    yield from _watch(document, now)


def _watch(document: Json, now: float) -> Iterator[Text]:
    """A line while the last change was found without the system's help."""
    heard, missed = document["last_event_at"], document["missed_event_at"]
    if missed is not None and (heard is None or heard < missed):
        last = "none has come" if heard is None else f"the last came {_ago(heard, now)}"
        found = f"a change was found {_ago(missed, now)} without a file event of the system"
        yield Text(f"{found}: {last}", "yellow")


def _ago(then: float, now: float) -> str:
    return f"{format_seconds(max(0.0, now - then))} ago"


# --- memory and progress ---------------------------------------------------------------------------


def _memory(memory: Json | None) -> Iterator[Text]:
    if memory is None:
        return
    if memory["error"] is not None:
        yield Text(f"memory: {one_line(memory['error'])}", "red")
        return
    taken = memory["limit"] - memory["reserve"] - memory["headroom"]
    line = Text("memory ").append_text(_bar(memory["warm"], taken, memory["limit"]))
    # Held for entries, also by one in mid-warm.
    held = format_size(memory["warm"])
    line.append(f" {format_size(taken)} of {format_size(memory['limit'])}, {held} held")
    yield line
    left, kept = format_size(max(0, memory["headroom"])), format_size(memory["reserve"])
    yield Text(f"       {left} left to warm, {kept} kept for requests")
    if (pressure := _PRESSURE.get(memory["pressure"])) is not None:
        yield Text(f"memory pressure of the system: {pressure}", "red")


def _disk(disk: Json | None) -> Iterator[Text]:
    if disk is None:
        return
    files = counted(disk["files"], "file")
    yield Text(f"disk {format_size(disk['bytes'])} in {files} in {one_line(disk['path'])}")
    if disk["problem"] is not None:
        yield Text(f"nothing new is kept on disk: {one_line(disk['problem'])}", "yellow")


def _bar(warm: int, taken: int, limit: int) -> Text:
    def cells(size: int) -> int:
        return max(0, min(BAR_CELLS, round(BAR_CELLS * size / limit))) if limit else BAR_CELLS

    all_taken = cells(taken)
    warm_cells = min(cells(warm), all_taken)
    bar = Text("[").append("=" * (all_taken - warm_cells)).append("#" * warm_cells, "green")
    return bar.append(" " * (BAR_CELLS - all_taken)).append("]")


def _progress(entries: list[Json]) -> Iterator[Text]:
    told = set()
    for entry in entries:
        if entry["state"] == "warming" and entry["prefix"] not in told:
            told.add(entry["prefix"])
            yield Text(_progress_line(entry), "cyan")


def _progress_line(entry: Json) -> str:
    done, tokens, rate = entry["done_tokens"], entry["tokens"], entry["tokens_per_s"]
    if not tokens:
        return f"warming {one_line(entry['name'])}"
    line = f"warming {one_line(entry['name'])}: {done:,} of {tokens:,} tokens ({100 * done // tokens} %)"
    if rate is None:
        return line
    return f"{line}, {rate:,.3g} tokens/s, {format_seconds((tokens - done) / rate)} left"


# --- entries ---------------------------------------------------------------------------------------


def _table(found: Json, now: float) -> Table:
    # Frames and folded cells are for reading, not for programs: those take --json.
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("name", overflow="fold")
    table.add_column("state", no_wrap=True)
    for title in ("tokens", "bytes", "source", "age", "hits", "tokens saved"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("reason", overflow="fold")
    for entry in found["entries"]:
        table.add_row(*_row(entry, now))
    totals = found["totals"]
    table.add_row(
        *_texts("total", f"{totals['states']['warm']} warm"),
        *_texts(_count(totals["tokens"]), _size(totals["kv_bytes"]), "", ""),
        *_texts(_count(totals["hits"]), _count(totals["tokens_saved"]), ""),
        style="dim",
    )
    return table


def _row(entry: Json, now: float) -> list[Text]:
    state = entry["state"]
    is_held = state in ("warm", "stored_not_served")
    age = format_seconds(max(0.0, now - entry["warmed_at"])) if is_held and entry["warmed_at"] else "-"
    return [
        Text(one_line(entry["name"])),
        Text(state, _STYLES.get(state, "")),
        *_texts(_count(entry["tokens"]), _size(entry["kv_bytes"])),
        *_texts((is_held and entry["source"]) or "-", age),
        *_texts(_count(entry["hits"]), _count(entry["tokens_saved"])),
        Text(one_line(entry["reason"] or "")),
    ]


def _texts(*texts: str) -> list[Text]:
    # Plain text would be searched for rich's own mark-up.
    return [Text(text) for text in texts]


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _size(size: int | None) -> str:
    return "-" if size is None else format_size(size)


def _near_misses(count: int | None) -> Iterator[Text]:
    if count:
        what = "1 request was a near miss" if count == 1 else f"{count:,} requests were near misses"
        yield Text(f"{what}: `warmd explain` shows the last ones")


def _suggestions(suggestions: list[Json] | None) -> Iterator[Text]:
    if not suggestions:
        return
    yield Text("Prefilled cold again and again; to make an entry of the next one:")
    yield Text("  warmd capture NAME --suggested --save")
    for item in suggestions[:SHOWN_SUGGESTIONS]:
        yield Text(f"  {item['tokens']:,} tokens, {item['times']} times ({item['prefix']})")


def format_seconds(seconds: float) -> str:
    """A time span for people: one number and its unit, or two where hours begin."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes = whole // 60
    if minutes < 120:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
