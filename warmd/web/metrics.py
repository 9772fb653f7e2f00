"""What Prometheus scrapes: one snapshot of the statistics, in base units, with the label `entry` only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar, get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from warmd.disk.status import DiskStatus
from warmd.memory.readings import Memory
from warmd.status import EntryStatus, LiveCounts, State, Statistics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
COUNTER = "_total"
"""How the names of counters end; everything else is a gauge."""

Source = TypeVar("Source")


@dataclass(frozen=True, slots=True)
class Measure(Generic[Source]):
    """One metric: its name, what it says, and how to read it; None is left out."""

    name: str
    meaning: str
    read: Callable[[Source], float | None]

    def family(self, labels: tuple[str, ...] = ()) -> GaugeMetricFamily | CounterMetricFamily:
        """An empty family of it."""
        kind = CounterMetricFamily if self.name.endswith(COUNTER) else GaugeMetricFamily
        return kind(self.name, self.meaning, labels=labels)


def _counting(state: State) -> Measure[Statistics]:
    return Measure(
        f"warmd_entries_{state}", f"Entries in the state {state}.", lambda found: found.count(state)
    )


GENERAL: tuple[Measure[Statistics], ...] = (
    Measure("warmd_uptime_seconds", "Since the daemon started.", lambda found: found.uptime_s),
    Measure("warmd_model_loaded", "1 while a model is loaded.", lambda found: found.model is not None),
    Measure(
        "warmd_prompts_last_reload_successful",
        "1 when the prompts file as it is now is in force.",
        lambda found: 0 < found.document.seen == found.document.accepted,
    ),
    Measure(
        "warmd_prompts_last_reload_success_timestamp_seconds",
        "When a revision of the prompts file was last accepted.",
        lambda found: found.document.accepted_at,
    ),
    Measure("warmd_prompts_seen_generation", "The revision seen last.", lambda found: found.document.seen),
    Measure(
        "warmd_prompts_accepted_generation", "The revision in force.", lambda found: found.document.accepted
    ),
    Measure(
        "warmd_prompts_applied_generation",
        "The revision for which all is done that can be.",
        lambda found: found.document.applied,
    ),
    Measure("warmd_paused", "1 while warming is paused.", lambda found: found.paused),
    Measure(
        "warmd_suggestions",
        "Beginnings that no entry has and that are prefilled cold again and again.",
        lambda found: len(found.suggestions) if found.suggestions is not None else None,
    ),
    Measure("warmd_entries", "Entries of the prompts file.", lambda found: len(found.entries)),
    *(_counting(state) for state in get_args(State)),
)

LIVE: tuple[Measure[LiveCounts], ...] = (
    Measure("warmd_live_requests_total", "Live requests.", lambda found: found.requests),
    Measure(
        "warmd_hits_total",
        "Those that began with all of an entry, without prefilling it.",
        lambda found: found.hits,
    ),
    Measure(
        "warmd_tokens_saved_total",
        "Tokens of these that came from an entry's own state.",
        lambda found: found.tokens_saved,
    ),
    Measure(
        "warmd_near_misses_total",
        "Live requests that began like an entry and then parted from it.",
        lambda found: found.near_misses,
    ),
)

MEMORY: tuple[Measure[Memory], ...] = (
    Measure(
        "warmd_memory_limit_bytes", "What the process may take while warming.", lambda found: found.limit
    ),
    Measure("warmd_memory_reserve_bytes", "Of it, kept for live requests.", lambda found: found.reserve),
    Measure("warmd_memory_warm_bytes", "Held for entries, warm or in mid-warm.", lambda found: found.warm),
    Measure("warmd_memory_readable", "0 when the memory cannot be read.", lambda found: found.error is None),
)

MEMORY_READ: tuple[Measure[Memory], ...] = (
    Measure("warmd_memory_active_bytes", "Held by mlx arrays.", lambda found: found.active),
    Measure("warmd_memory_cache_bytes", "Freed by mlx, kept for reuse.", lambda found: found.cache),
    Measure(
        "warmd_memory_headroom_bytes",
        "What warming may still take; negative when it took too much.",
        lambda found: found.headroom,
    ),
    Measure(
        "warmd_memory_pressure",
        "The system's memory pressure: 1 normal, 2 warning, 4 critical.",
        lambda found: found.pressure,
    ),
)
"""Those that are not known while the memory cannot be read."""

DISK: tuple[Measure[DiskStatus], ...] = (
    Measure("warmd_disk_files", "Files of state on disk.", lambda found: found.files),
    Measure("warmd_disk_bytes", "Bytes of them.", lambda found: found.bytes),
    Measure("warmd_disk_usable", "0 while the disk cannot be used.", lambda found: found.problem is None),
)

ENTRY: tuple[Measure[EntryStatus], ...] = (
    Measure("warmd_entry_warm", "1 when a look-up has proved it warm.", lambda found: found.state == "warm"),
    Measure("warmd_entry_tokens", "Length of its prefix.", lambda found: found.tokens),
    Measure("warmd_entry_kv_bytes", "What the engine holds for it.", lambda found: found.kv_bytes),
    Measure(
        "warmd_entry_hits_total",
        "Requests that began with all of it, without prefilling it.",
        lambda found: found.hits,
    ),
    Measure(
        "warmd_entry_tokens_saved_total",
        "Tokens of requests that came from its own state.",
        lambda found: found.tokens_saved,
    ),
    Measure(
        "warmd_entry_near_misses_total",
        "Requests that began like it and then parted from it.",
        lambda found: found.near_misses,
    ),
    Measure(
        "warmd_entry_warm_seconds_total",
        "Spent on warming it, also in vain.",
        lambda found: round(found.warm_seconds, 6),
    ),
    Measure("warmd_entry_warmed_timestamp_seconds", "When it became warm.", lambda found: found.warmed_at),
    Measure(
        "warmd_entry_last_hit_timestamp_seconds",
        "When a request last began from all of it.",
        lambda found: found.last_hit_at,
    ),
)


class StatisticsCollector(Collector):
    """Offers one snapshot to prometheus_client."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics

    def collect(self) -> Iterator[Metric]:
        """Every metric that has a value."""
        yield from _plain(GENERAL, self._statistics)
        if self._statistics.live is not None:
            yield from _plain(LIVE, self._statistics.live)
        memory = self._statistics.memory
        if memory is not None:
            yield from _plain(MEMORY, memory)
            yield from _plain(MEMORY_READ if memory.error is None else (), memory)
        if self._statistics.disk is not None:
            yield from _plain(DISK, self._statistics.disk)
        for measure in ENTRY:
            family = measure.family(("entry",))
            for entry in self._statistics.entries:
                value = measure.read(entry)
                if value is not None:
                    family.add_metric([_encodable(entry.name)], value)
            yield family


def exposition(statistics: Statistics) -> bytes:
    """A snapshot in the text format."""
    registry = CollectorRegistry()
    registry.register(StatisticsCollector(statistics))
    return generate_latest(registry)


def _plain(measures: Iterable[Measure[Source]], source: Source) -> Iterator[Metric]:
    for measure in measures:
        value = measure.read(source)
        if value is not None:
            family = measure.family()
            family.add_metric([], value)
            yield family


def _encodable(name: str) -> str:
    """A lone surrogate, which JSON can write, is not text; escaped, names stay different from each other."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")
