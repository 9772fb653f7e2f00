"""What `warmd status` shows, line by line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from warmd.cli import make_parser
from warmd.commands.status_report import format_seconds, report
from warmd.disk.status import DiskStatus
from warmd.engines.base import ServerStatus
from warmd.memory.readings import Memory
from warmd.prompts.document import FileError
from warmd.status import DocumentStatus, EntryStatus, LiveCounts, Statistics, status_json
from warmd.suggestions import Suggestion

NOW = 1_000_000.0
MEMORY = Memory(limit=1000, active=300, cache=0, warm=200, headroom=400, pressure=1, reserve=100)
EMPTY = Statistics("1.2", 7, 30.0, "m", DocumentStatus(Path("/x/p.json"), "ab", 1, 1, 1))


def lines(statistics: Statistics, width: int = 200, **console: Any) -> list[str]:
    """The report's lines without their trailing spaces."""
    found = Console(width=width, **console)
    with found.capture() as capture:
        found.print(report(status_json(statistics), NOW))
    return [line.rstrip() for line in capture.get().splitlines()]


def with_entries(*entries: EntryStatus) -> Statistics:
    return replace(EMPTY, entries=entries)


def test_nothing_to_do_is_said() -> None:
    assert lines(EMPTY) == [
        "m (warmd 1.2, pid 7, up 30 s)",
        "/x/p.json: generation 1",
        "",
        "nothing is to be kept warm",
    ]


def test_without_a_model_or_a_file_it_says_so() -> None:
    early = replace(EMPTY, model=None, document=DocumentStatus(Path("/x/p.json")))
    assert lines(early)[:2] == ["no model is loaded (warmd 1.2, pid 7, up 30 s)", "/x/p.json: not read yet"]


@pytest.mark.parametrize(
    ("heard", "missed", "expected"),
    [
        (None, None, []),
        (NOW - 9, None, []),
        (NOW - 9, NOW - 60, []),
        (None, NOW - 9, ["a change was found 9 s ago without a file event of the system: none has come"]),
        (
            NOW - 7300,
            NOW - 9,
            ["a change was found 9 s ago without a file event of the system: the last came 2 h 1 min ago"],
        ),
    ],
)
def test_a_watch_that_missed_a_change_is_shown_until_it_hears_again(
    heard: float | None, missed: float | None, expected: list[str]
) -> None:
    document = replace(EMPTY.document, last_event_at=heard, last_check_at=NOW, missed_event_at=missed)
    assert lines(replace(EMPTY, document=document))[1:] == [
        "/x/p.json: generation 1",
        *expected,
        "",
        "nothing is to be kept warm",
    ]


def test_of_a_server_elsewhere_the_address_is_shown_and_what_is_wrong_with_it() -> None:
    away = replace(EMPTY, model=None, server=ServerStatus("http://s:1", "the server answered 401"))
    assert lines(away)[:2] == [
        "no model at http://s:1 (warmd 1.2, pid 7, up 30 s)",
        "nothing can be warmed there: the server answered 401",
    ]
    there = replace(EMPTY, server=ServerStatus("http://s:1"))
    assert lines(there)[:2] == ["m at http://s:1 (warmd 1.2, pid 7, up 30 s)", "/x/p.json: generation 1"]


def test_what_is_on_disk_is_shown_and_what_hinders_it() -> None:
    disk = DiskStatus("/kv", 3, 12_000_000)
    assert lines(replace(EMPTY, disk=disk))[2:4] == ["disk 12 MB in 3 files in /kv", ""]
    full = replace(disk, files=1, problem="No space left on device")
    assert lines(replace(EMPTY, disk=full))[2:4] == [
        "disk 12 MB in 1 file in /kv",
        "nothing new is kept on disk: No space left on device",
    ]


def test_errors_of_the_file_come_with_their_places_and_their_consequence() -> None:
    errors = (FileError(3, 5, "$.a", "expected a list"), FileError(None, None, "$", "no such file"))
    wrong = replace(EMPTY.document, errors=errors * 4)
    assert lines(replace(EMPTY, document=wrong))[1:8] == [
        "/x/p.json: the file is wrong, generation 1 stays in force",
        *["  p.json:3:5: expected a list (at $.a)", "  p.json: no such file"] * 2,
        "  p.json:3:5: expected a list (at $.a)",
        "  and 3 more",
    ]
    never = replace(wrong, accepted=0)
    assert lines(replace(EMPTY, document=never))[1] == "/x/p.json: the file is wrong, nothing is kept warm"


def test_a_file_that_is_not_there_yet_is_no_wrong_file() -> None:
    error = FileError(None, None, "$", "no such file")
    missing = replace(EMPTY.document, errors=(error,), accepted=0)
    assert lines(replace(EMPTY, document=missing))[1] == (
        "/x/p.json: there is no such file, nothing is kept warm until there is"
    )
    gone = replace(missing, accepted=2)
    assert lines(replace(EMPTY, document=gone))[1] == (
        "/x/p.json: there is no such file, generation 2 stays in force until there is"
    )


def test_the_memory_is_held_against_its_limit() -> None:
    assert lines(replace(EMPTY, memory=MEMORY))[2:4] == [
        "memory [=========######               ] 500 B of 1 KB, 200 B held",
        "       400 B left to warm, 100 B kept for requests",
    ]


@pytest.mark.parametrize(
    ("change", "bar"),
    [
        ({"headroom": -500}, "[========================######]"),
        ({"warm": 0, "headroom": 900}, "[                              ]"),
        ({"warm": 5000, "headroom": -5000}, "[##############################]"),
    ],
)
def test_the_bar_stays_within_its_frame(change: dict[str, Any], bar: str) -> None:
    assert f"memory {bar} " in lines(replace(EMPTY, memory=replace(MEMORY, **change)))[2]


def test_pressure_and_a_memory_that_cannot_be_read_are_told() -> None:
    assert lines(replace(EMPTY, memory=replace(MEMORY, pressure=4)))[4] == (
        "memory pressure of the system: critical"
    )
    unknown = replace(MEMORY, limit=0, error="cannot read /proc/meminfo: gone")
    assert lines(replace(EMPTY, memory=unknown))[2] == "memory: cannot read /proc/meminfo: gone"


def test_each_entry_has_a_row_and_all_have_a_total() -> None:
    warm = EntryStatus(
        "coder",
        "warm",
        prefix="0f",
        tokens=12_000,
        kv_bytes=1_230_000,
        source="prefill",
        warmed_at=NOW - 180,
        hits=4,
        tokens_saved=48_000,
    )
    failed = EntryStatus("shell", "failed", reason="no content")
    live = LiveCounts(requests=9, hits=5, tokens_saved=50_000)
    table = lines(replace(with_entries(warm, failed), live=live))[3:]
    assert [line.split() for line in table] == [
        ["name", "state", "tokens", "bytes", "source", "age", "hits", "tokens", "saved", "reason"],
        ["coder", "warm", "12,000", "1.23", "MB", "prefill", "3", "min", "4", "48,000"],
        ["shell", "failed", "-", "-", "-", "-", "0", "0", "no", "content"],
        ["total", "1", "warm", "12,000", "1.23", "MB", "5", "50,000"],
    ]


def test_what_nobody_knows_is_a_dash() -> None:
    entry = EntryStatus("a", "warm", tokens=10, source="prefill", warmed_at=NOW).without_requests()
    unseen = replace(with_entries(entry), live=None, suggestions=None)
    assert [line.split() for line in lines(unseen)[-2:]] == [
        ["a", "warm", "10", "-", "prefill", "0", "s", "-", "-"],
        ["total", "1", "warm", "10", "-", "-", "-"],
    ]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "1 request was a near miss: `warmd explain` shows the last ones"),
        (1200, "1,200 requests were near misses: `warmd explain` shows the last ones"),
    ],
)
def test_near_misses_are_told_with_the_command_that_shows_them(count: int, text: str) -> None:
    assert lines(replace(EMPTY, live=LiveCounts(near_misses=count)))[-2:] == ["", text]


def test_header_and_memory_fit_into_80_columns_the_end_of_a_path_seen() -> None:
    deep = "/Users/somebody/Library/Application Support/models/of/mine/mlx-community/Qwen3-Coder-30B"
    wrong = DocumentStatus(Path(deep) / "prompts.json", accepted=1234, errors=(FileError(1, 1, "$", "no"),))
    memory = replace(MEMORY, limit=123_456_789_000, headroom=99_950_000_000, warm=12_340_000_000)
    found = replace(EMPTY, model=deep, pid=999_999, uptime_s=400_000, memory=memory, document=wrong)
    shown = lines(found, 80)
    assert shown[0].startswith("…")
    assert shown[0].endswith("/Qwen3-Coder-30B (warmd 1.2, pid 999999, up 4 d 15 h)")
    assert shown[1].endswith("30B/prompts.json: the file is wrong, generation 1234 stays in force")
    assert shown[3].startswith("memory [")
    assert shown[4] == "       100 GB left to warm, 100 B kept for requests"
    assert [len(line) for line in shown[:2]] == [80, 80]
    assert lines(found, 200)[0].startswith(deep)


def test_a_warming_shows_its_rate_and_the_time_left() -> None:
    warming = EntryStatus("a", "warming", prefix="0f", tokens=4000, done_tokens=1000)
    assert lines(with_entries(warming))[2] == "warming a: 1,000 of 4,000 tokens (25 %)"
    going = replace(warming, tokens_per_s=50.0)
    assert lines(with_entries(going))[2] == (
        "warming a: 1,000 of 4,000 tokens (25 %), 50 tokens/s, 60 s left"
    )
    twins = with_entries(warming, replace(warming, name="b"))
    assert sum(line.startswith("warming") for line in lines(twins)) == 1


def test_suggestions_come_last() -> None:
    found = replace(EMPTY, suggestions=(Suggestion("0123456789abcdef", 2048, 5),))
    assert lines(found)[-3:] == [
        "Prefilled cold again and again; to make an entry of the next one:",
        "  warmd capture NAME --suggested --save",
        "  2,048 tokens, 5 times (0123456789ab)",
    ]
    # What it says works as typed, but for the name.
    args = make_parser().parse_args(["capture", "NAME", "--suggested", "--save"])
    assert (args.name, args.suggested, args.save) == ("NAME", True, True)


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_narrow_terminal_is_no_problem(width: int) -> None:
    entry = EntryStatus("a-name-that-is-long" * 3, "stored_not_served", tokens=1, reason="because " * 20)
    found = replace(with_entries(entry), memory=MEMORY)
    assert all(len(line) <= width for line in lines(found, width, force_terminal=True, color_system=None))


def test_nothing_that_is_shown_steers_the_terminal() -> None:
    bad = "\x1b[2J\x07[red]\r\nx\u202e\x9b"
    entry = EntryStatus(bad, "failed", tokens=1, reason=bad)
    warming = EntryStatus(bad, "warming", prefix="1", tokens=2, done_tokens=1)
    wrong = DocumentStatus(Path(f"/{bad}"), errors=(FileError(1, 1, bad, bad),))
    found = replace(with_entries(entry, warming), model=bad, document=wrong)
    shown = "\n".join(lines(found))
    assert {character for character in shown if not character.isprintable()} == {"\n"}
    assert shown.count("[red]") >= 6


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (119.4, "119 s"),
        (120, "2 min"),
        (7199, "119 min"),
        (7260, "2 h 1 min"),
        (172_800, "2 d 0 h"),
    ],
)
def test_time_spans_are_for_people(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
