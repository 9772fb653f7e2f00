"""The text that Prometheus reads."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import get_args

from prometheus_client.parser import text_string_to_metric_families

from tests.reference import metric_names
from tests.web.stage import DOCUMENT, ENTRIES, MEMORY, make_statistics, rejected
from warmd.disk.status import DiskStatus
from warmd.memory.readings import Limit, Memory, ReadingError
from warmd.prompts.document import FileError
from warmd.status import EntryStatus, State, Statistics
from warmd.web.metrics import exposition

Samples = dict[tuple[str, str | None], float]


def samples(statistics: Statistics) -> Samples:
    """Values by name and entry."""
    families = text_string_to_metric_families(exposition(statistics).decode())
    return {
        (sample.name, sample.labels.get("entry")): sample.value
        for family in families
        for sample in family.samples
    }


def test_numbers_are_in_base_units() -> None:
    found = samples(make_statistics())
    assert found["warmd_memory_limit_bytes", None] == MEMORY.limit
    assert found["warmd_memory_headroom_bytes", None] == MEMORY.headroom
    assert found["warmd_memory_pressure", None] == 1
    assert found["warmd_prompts_last_reload_successful", None] == 1
    assert found["warmd_prompts_last_reload_success_timestamp_seconds", None] == DOCUMENT.accepted_at
    assert found["warmd_tokens_saved_total", None] == 801_004
    assert found["warmd_entry_warm", "code-reviewer"] == 1
    assert found["warmd_entry_warm", "shell"] == 0
    assert found["warmd_entry_tokens_saved_total", "code-reviewer"] == 746_364
    assert found["warmd_entry_hits_total", "code-reviewer"] == 41
    assert found["warmd_entry_warm_seconds_total", "code-reviewer"] == 73.5
    assert found["warmd_entry_near_misses_total", "docs"] == 3
    assert ("warmd_entry_kv_bytes", "docs") not in found


def test_where_nobody_sees_requests_nothing_is_said_of_them() -> None:
    entries = tuple(entry.without_requests() for entry in ENTRIES)
    found = samples(replace(make_statistics(), entries=entries, live=None, suggestions=None))
    words = ("hits", "saved", "near_misses", "live", "suggestions")
    assert [name for name, _ in found if any(word in name for word in words)] == []
    assert found["warmd_entry_warm", "code-reviewer"] == 1


def test_what_is_on_disk_is_told_where_something_is_kept_there() -> None:
    found = samples(replace(make_statistics(), disk=DiskStatus("/kv", 3, 12_000_000)))
    names = ("warmd_disk_files", "warmd_disk_bytes", "warmd_disk_usable")
    assert [found[name, None] for name in names] == [3, 12_000_000, 1]
    full = samples(replace(make_statistics(), disk=DiskStatus("/kv", 3, 12_000_000, "full")))
    assert full["warmd_disk_usable", None] == 0
    assert not any(name in names for name, _ in samples(make_statistics()))


def test_every_state_is_counted() -> None:
    states = get_args(State)
    entries = [EntryStatus(f"{state}{number}", state) for number, state in enumerate(states)]
    found = samples(make_statistics(entries=tuple(entries)))
    assert [found[f"warmd_entries_{state}", None] for state in states] == [1] * len(states)
    assert found["warmd_entries", None] == len(states)


def test_the_only_label_is_the_entry() -> None:
    families = list(text_string_to_metric_families(exposition(make_statistics()).decode()))
    labels = {label for family in families for sample in family.samples for label in sample.labels}
    assert labels == {"entry"}
    assert all(family.documentation for family in families)
    assert {family.type for family in families} == {"gauge", "counter"}


def test_what_is_not_known_is_left_out() -> None:
    found = samples(make_statistics(memory=None, model=None, document=replace(DOCUMENT, accepted_at=None)))
    assert not [name for name, _ in found if name.startswith("warmd_memory")]
    assert found["warmd_model_loaded", None] == 0
    assert ("warmd_prompts_last_reload_success_timestamp_seconds", None) not in found
    unread = Memory.unknown(ReadingError("the memory", "no"), Limit(10**9, 10**8), 5)
    found = samples(make_statistics(memory=unread))
    assert found["warmd_memory_readable", None] == 0
    assert found["warmd_memory_warm_bytes", None] == 5
    assert ("warmd_memory_active_bytes", None) not in found


def test_a_reload_that_failed_shows() -> None:
    found = samples(make_statistics(document=rejected(FileError(None, None, "$", "no such file"))))
    assert found["warmd_prompts_last_reload_successful", None] == 0
    assert found["warmd_prompts_accepted_generation", None] == 7
    nothing = replace(DOCUMENT, seen=0, accepted=0, applied=0)
    assert samples(make_statistics(document=nothing))["warmd_prompts_last_reload_successful", None] == 0


def test_any_name_can_be_read_back() -> None:
    names = ['"quoted" \\ back', "zwölf 猫 🐈", "{}=,#", "half \ud800", "half \udfff"]
    entries = tuple(EntryStatus(name, "warm") for name in names)
    found = samples(make_statistics(entries=entries))
    shown = [entry for name, entry in found if name == "warmd_entry_warm"]
    assert shown == [*names[:3], "half \\ud800", "half \\udfff"]


def test_the_reference_has_every_name_and_no_other() -> None:
    disk = DiskStatus("/kv", 3, 4096, None)
    found = {name for name, _ in samples(replace(make_statistics(), disk=disk))}
    assert found == set(metric_names())


def test_five_hundred_entries_take_milliseconds() -> None:
    entries = tuple(replace(ENTRIES[0], name=f"entry {number}") for number in range(500))
    statistics = make_statistics(entries=entries)
    took = []
    for _ in range(5):
        began = time.perf_counter()
        exposition(statistics)
        took.append(time.perf_counter() - began)
    # About 30 ms where it was measured; the bound is for machines that do other things, too.
    assert min(took) < 0.2
