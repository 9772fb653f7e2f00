"""`warmd explain`: why requests missed an entry, with the texts, on the user's own terminal."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any

from warmd.explain.excerpt import WIDTH, visible
from warmd.text import counted

DESCRIPTION = """\
Show why live requests that began like an entry did not start from all of it: the two texts around their
first difference, where it lies, and the likely cause. The daemon remembers the last few of them, in memory.
What this prints is prompt text."""

Json = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what it takes."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="the entry (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Ask the daemon and print."""
    # Imported here: only what talks to the daemon needs it.
    from warmd.control.client import ask

    found = ask("explain", **({"name": args.name} if args.name is not None else {}))
    if args.json:
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(report_lines(found, time.time())))
    return 0


def report_lines(found: Json, now: float) -> Iterator[str]:
    """The report for people: near misses, the newest last, then what is known of the other entries."""
    misses = found["near_misses"]
    shown = _grouped(misses or [])
    for item, times in shown:
        yield from _near_miss_lines(item, times, now)
        yield ""
    missed = {item["entry"] for item, _ in shown}
    quiet = [entry for entry in found["entries"] if entry["name"] not in missed]
    if misses is None:
        yield "requests are not seen here: whether one missed is not known"
    elif not shown:
        yield "no near miss is remembered"
    yield from (_entry_line(entry, now) for entry in quiet)


def _grouped(misses: list[Json]) -> list[tuple[Json, int]]:
    """What misses in the same way again and again is told once: its newest miss, and how many there are."""
    groups: dict[str, tuple[Json, int]] = {}
    for item in misses:
        key = json.dumps([item[name] for name in ("entry", "place", "message", "excerpt", "also", "since")])
        _, times = groups.pop(key, (item, 0))
        groups[key] = item, times + 1
    return list(groups.values())


def _near_miss_lines(item: Json, times: int, now: float) -> Iterator[str]:
    tokens = f"{item['matched']:,} of its {item['prefix_tokens']:,} tokens matched"
    other = f", counted for {visible(item['counted_for'])}" if item["counted_for"] is not None else ""
    again = f" ({times} such requests remembered)" if times > 1 else ""
    yield f"{visible(item['entry'])}: near miss {ago(item['at'], now)}, {tokens}{other}{again}"
    yield f"  {visible(item['place'])}: {visible(item['message'])}"
    if item["excerpt"] is not None:
        yield from _excerpt_lines(item["excerpt"])
    for other in item["also"]:
        yield f"  also {visible(other['place'])}: {visible(other['message'])}"
    if item["since"] is not None:
        fits = ": as it is now the request would fit" if item["fits_now"] else ""
        yield f"  the entry has been {item['since']} since{fits}"


def _excerpt_lines(excerpt: Json) -> Iterator[str]:
    start = "…" if excerpt["offset"] > len(excerpt["before"]) else ""
    yield f"    both     {start}{_text(excerpt['before'])}"
    for who in ("entry", "request"):
        end = "…" if len(excerpt[who]) == WIDTH else ""
        yield f"    {who:<8} {_text(excerpt[who])}{end}"


def _text(text: str) -> str:
    shown = visible(text)
    # A space at the edge of a line would not be seen.
    core = shown.strip(" ")
    if not core:
        return "␠" * len(shown) or "(nothing)"
    before, _, after = shown.partition(core)
    return "␠" * len(before) + core + "␠" * len(after)


def _entry_line(entry: Json, now: float) -> str:
    tokens = f", {entry['tokens']:,} tokens" if entry["tokens"] is not None else ""
    hits = f", {counted(entry['hits'], 'hit')}" if entry["hits"] is not None else ""
    last = f", the last {ago(entry['last_hit_at'], now)}" if entry["last_hit_at"] is not None else ""
    reason = f" ({visible(entry['reason'])})" if entry["reason"] else ""
    return f"{visible(entry['name'])}: {entry['state']}{reason}{tokens}{hits}{last}"


def ago(at: float, now: float) -> str:
    """A time for people."""
    seconds = max(0, round(now - at))
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
