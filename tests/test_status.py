"""The statistics as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

from tests.test_testing import make_entry
from warmd.disk.status import DiskStatus
from warmd.engines.base import Prefix
from warmd.ledger import Ledger
from warmd.memory.readings import Memory
from warmd.prompts.document import Document, FileError
from warmd.status import DocumentStatus, EntryStatus, LiveCounts, State, Statistics, status_json
from warmd.suggestions import Suggestion

ERROR = FileError(3, 1, "$.prompts[0]", "expected a list")
ENTRIES = (
    EntryStatus(
        "a",
        "warm",
        prefix="0f",
        tokens=10,
        kv_bytes=80,
        source="prefill",
        warmed_at=5.5,
        hits=2,
        tokens_saved=20,
    ),
    EntryStatus("twin", "warm", prefix="0f", tokens=10, kv_bytes=80, hits=2, tokens_saved=20),
    EntryStatus("b", "warming", prefix="1f", tokens=30, done_tokens=12, tokens_per_s=4.0),
    EntryStatus("c", "failed", reason="no content"),
)
STATISTICS = Statistics(
    version="1",
    pid=7,
    uptime_s=3.5,
    model="m",
    document=DocumentStatus(Path("/p.json"), "ab", 3, 2, 1, (ERROR,), 4.5),
    entries=ENTRIES,
    memory=Memory(limit=100, active=50, cache=1, warm=80, headroom=-3, pressure=2),
    live=LiveCounts(requests=20, hits=9, tokens_saved=90, near_misses=3),
    paused=True,
    suggestions=(Suggestion("0123456789abcdef", 512, 3),),
)


def test_what_is_not_being_warmed_has_come_nowhere_whatever_is_still_said_of_it() -> None:
    entry = make_entry("a")
    document = Document(Path("/p.json"), "", "", (entry,), ())
    prefix = Prefix(tuple(range(9)))
    ledger = Ledger()
    ledger.update(document, {entry.digest: prefix})
    slot = ledger.slots[prefix.key]
    slot.mark_warming(lambda: None)
    slot.mark_progress(4)
    assert ledger.statuses(document, {})[0].done_tokens == 4
    slot.mark_pending()
    # The engine's thread had left this before it heard.
    slot.mark_progress(5)
    assert ledger.statuses(document, {})[0].done_tokens == 0


def test_it_is_json_with_the_stable_names() -> None:
    found = json.loads(json.dumps(status_json(STATISTICS), allow_nan=False))
    assert (found["version"], found["pid"], found["uptime_s"], found["model"]) == ("1", 7, 3.5, "m")
    assert found["paused"] is True
    assert found["document"] == {
        "path": "/p.json",
        "sha256": "ab",
        "seen": 3,
        "accepted": 2,
        "applied": 1,
        "errors": [{"line": 3, "column": 1, "path": "$.prompts[0]", "message": "expected a list"}],
        "accepted_at": 4.5,
        "last_event_at": None,
        "last_check_at": None,
        "missed_event_at": None,
    }
    assert found["memory"].items() >= {
        ("limit", 100),
        ("active", 50),
        ("cache", 1),
        ("warm", 80),
        ("headroom", -3),
        ("pressure", 2),
    }
    assert found["suggestions"] == [{"prefix": "0123456789ab", "tokens": 512, "times": 3}]


def test_every_entry_has_every_field() -> None:
    entries = status_json(STATISTICS)["entries"]
    assert [entry["name"] for entry in entries] == ["a", "twin", "b", "c"]
    contract = {"name", "state", "tokens", "kv_bytes", "source", "warmed_at", "hits", "tokens_saved"}
    assert all(entry.keys() >= contract | {"last_hit_at", "reason", "done_tokens"} for entry in entries)
    assert (entries[2]["done_tokens"], entries[2]["tokens_per_s"]) == (12, 4.0)


def test_totals_count_what_entries_share_once() -> None:
    totals = status_json(STATISTICS)["totals"]
    assert totals["states"] == dict.fromkeys(get_args(State), 0) | {"warm": 2, "warming": 1, "failed": 1}
    assert (totals["entries"], totals["tokens"], totals["kv_bytes"]) == (4, 40, 80)


def test_what_requests_were_spared_counts_since_the_start_whatever_was_edited_since() -> None:
    totals = status_json(STATISTICS)["totals"]
    assert (totals["hits"], totals["tokens_saved"], totals["near_misses"]) == (9, 90, 3)


def test_what_nobody_knows_of_requests_and_sizes_is_null() -> None:
    entries = (EntryStatus("a", "warm", prefix="0f").without_requests(), EntryStatus("b"))
    found = status_json(replace(STATISTICS, entries=entries, live=None, suggestions=None))
    assert (found["live"], found["suggestions"]) == (None, None)
    assert (found["entries"][0]["hits"], found["entries"][0]["near_misses"]) == (None, None)
    unknown = ("tokens", "kv_bytes", "hits", "tokens_saved", "near_misses")
    assert [found["totals"][name] for name in unknown] == [None] * 5


def test_what_is_on_disk_is_in_bytes() -> None:
    found = status_json(replace(STATISTICS, disk=DiskStatus("/kv", 3, 12_000_000, "full")))["disk"]
    assert found == {"path": "/kv", "files": 3, "bytes": 12_000_000, "problem": "full"}


def test_what_is_not_known_is_null() -> None:
    empty = Statistics("1", 7, 0.0, None, DocumentStatus(Path("/p.json")))
    found = status_json(empty)
    assert (found["model"], found["memory"], found["disk"], found["entries"]) == (None, None, None, [])
    assert found["document"]["sha256"] is None
