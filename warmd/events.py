"""The event catalogue: every name that warmd logs, with its level and its fields.

The core only builds `Event` values and hands them to a callable; who writes them where is `warmd.logs`'s
business. Fields are flat, numbers are in base units, and no field ever holds prompt text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Level = Literal["debug", "info", "warning", "error"]

FOREIGN = "foreign.logged"
"""What other code logged, warned, raised or printed. Not in the catalogue, as its fields vary:

`logger` (`stderr` for prints, `python` for uncaught exceptions), `message` (null where it could hold
content), and where known `at` (place in the source), `category` (of a warning), `exception` (its type),
`where` (the innermost places it came from) and `characters` (how much was printed).
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """What is fixed about an event.

    Attributes:
        level: Usually.
        fields: Exactly those that it carries.
        meaning: What it says.
        unsaid: Fields that say nothing where they are 0: people are not shown them then.
    """

    level: Level
    fields: tuple[str, ...]
    meaning: str
    unsaid: tuple[str, ...] = ()


CATALOGUE: Mapping[str, Kind] = {
    "daemon.started": Kind(
        "info", ("version", "pid", "path", "engine"), "the daemon has begun to watch `path`"
    ),
    "daemon.ready": Kind(
        "info", ("model", "entries", "url"), "the first document has been planned; live requests are welcome"
    ),
    "daemon.paused": Kind("info", (), "somebody asked that nothing be warmed until `daemon.resumed`"),
    "daemon.resumed": Kind("info", (), "warming goes on"),
    "daemon.reported": Kind(
        "info",
        (
            "model",
            "uptime_s",
            "paused",
            "generation",
            "entries",
            "warm",
            "requests",
            "hits",
            "tokens_saved",
            "headroom",
        ),
        "SIGUSR1 or SIGINFO asked how things are; `warm` are entries, `headroom` bytes that warming may take",
    ),
    "daemon.stopping": Kind("info", ("pid", "reason"), "a stop was asked for"),
    "daemon.stopped": Kind(
        "info",
        ("pid", "exit_code", "reason"),
        "the last line of process `pid`, which may be a start that failed beside a server that runs; "
        "an error where it does not end with 0",
    ),
    "daemon.gave_up": Kind(
        "error",
        ("failures", "seconds", "reason"),
        "the last line of so many starts that failed within that time: it ends with 0, to be left alone",
    ),
    "prompts.accepted": Kind(
        "info",
        ("generation", "sha256", "entries", "added", "edited", "removed", "unchanged"),
        "a revision of the file is in force; all but `sha256` are counts",
    ),
    "prompts.rejected": Kind(
        "error",
        ("sha256", "kept_generation", "errors"),
        "the file is invalid and the last good one stays; each error has `line, column, path, message`",
    ),
    "prompts.unchanged": Kind(
        "info",
        ("generation", "sha256", "valid"),
        "somebody had the file read (SIGHUP, `warmd reload`), and it is as before: valid and in force, or (a "
        "warning) still wrong, with `generation` in force",
    ),
    "plan.made": Kind(
        "info",
        ("generation", "keep", "warm", "drop", "defer", "new_tokens", "disk_tokens"),
        "what will be done; counts of distinct prefixes, and of tokens to prefill and to read from disk as "
        "far as known by then",
        unsaid=("disk_tokens",),
    ),
    "entry.planned": Kind(
        "info",
        ("entry", "tokens", "own_tokens", "shared_tokens", "kv_bytes", "fits"),
        "what holding it will take, told before anything is prefilled: tokens of its own, and those that it "
        "shares with others; `kv_bytes` is null until it is known",
    ),
    "entry.deferred": Kind(
        "warning",
        ("entry", "needed", "available", "reason"),
        "it waits for memory, in bytes, or (0 bytes) for what `reason` says, such as live requests that "
        "left it no time for `[warm] max_pause`; it goes on by itself",
    ),
    "entry.warming": Kind("info", ("entry", "tokens"), "its prefix is being prefilled"),
    "entry.warmed": Kind(
        "info",
        (
            "entry",
            "tokens",
            "new_tokens",
            "reused_tokens",
            "source",
            "ms",
            "kv_bytes",
            "disk_tokens",
            "disk_bytes",
            "disk_ms",
        ),
        "a look-up has proved that a request would get it; `source` is what gave more, `prefill` or `disk`; "
        "null: all of it was in the server's own cache",
        unsaid=("disk_tokens", "disk_bytes", "disk_ms"),
    ),
    "entry.slow": Kind(
        "warning",
        ("entry", "tokens_per_s", "best_tokens_per_s", "under_launchd", "reason"),
        "`slow_prefill`: computing it goes more than 10 times slower than this model's best on this machine; "
        "the time that live requests take does not count",
    ),
    "entry.failed": Kind(
        "warning",
        ("entry", "state", "reason", "retry_in_s"),
        "it is not warm; `retry_in_s` is null where only an edit or another model helps",
    ),
    "entry.volatile": Kind(
        "warning",
        ("entry", "position", "reason"),
        "its template prints the time of day before the entry's own text, from this token on: it is "
        "not warmed",
    ),
    "entry.dropped": Kind(
        "info",
        ("entry", "tokens", "reason"),
        "its prefix has been freed; `reason` is null where nobody wants it any more",
    ),
    "entry.lost": Kind(
        "warning",
        ("entry", "tokens", "cause"),
        "a request would not get it any more; it will be warmed again",
    ),
    "entry.suspected": Kind(
        "warning",
        ("entry", "tokens", "ends"),
        "the last run ended abruptly while it was being warmed; after 2 such `ends` it is `quarantined`",
    ),
    "live.hit": Kind(
        "info",
        ("entry", "tokens", "cached"),
        "a request of so many tokens began with all of an entry's prefix; that, and so `cached` tokens, were "
        "not prefilled",
    ),
    "live.near_miss": Kind(
        "warning",
        ("entry", "tokens", "matched", "prefix_tokens", "cached"),
        "a request began like an entry and parted from it after `matched` of its `prefix_tokens`",
    ),
    "engine.model_changed": Kind(
        "info",
        ("model", "previous"),
        "everything is warmed anew for another model; without a model (null) it waits for one",
    ),
    "engine.reloaded": Kind(
        "info",
        ("model",),
        "the same model is there anew, loaded again or by a server that was away: everything is warmed anew",
    ),
    "engine.unwarmable": Kind("error", ("model", "reason"), "nothing can be kept warm for this model"),
    "engine.unreachable": Kind(
        "warning", ("url", "reason"), "the server that a sidecar warms does not answer; it is asked again"
    ),
    "rank.joined": Kind(
        "info",
        ("ranks",),
        "the model runs on so many processes, which `mlx.launch` has started; this one leads, and nothing is "
        "kept on disk",
    ),
    "rank.following": Kind("info", ("rank", "ranks"), "this process does what rank 0 says"),
    "rank.diverged": Kind(
        "warning", (), "the ranks held different state, so that all of it was freed; it is warmed again"
    ),
    "engine.died": Kind("error", ("reason",), "the engine cannot go on; the process ends with a failure"),
    "memory.pressure": Kind(
        "warning",
        ("pressure", "limit", "headroom", "warm"),
        "the system's pressure changed to 1 (normal), 2 or 4 (critical); sizes in bytes",
    ),
    "memory.failed": Kind(
        "error",
        ("reason",),
        "the memory cannot be read or the limit leaves no room: nothing is warmed until this changes",
    ),
    "store.written": Kind(
        "debug",
        ("tokens", "new_tokens", "bytes", "ms"),
        "a file is on disk, with the state of so many new tokens",
    ),
    "store.failed": Kind(
        "warning",
        ("operation", "reason"),
        "to `write`, to `read` or to `identify` the model: warming and serving go on from memory",
    ),
    "store.rejected": Kind(
        "warning",
        ("file", "tokens", "reason"),
        "a file is not used, and what it holds is prefilled; an info where it only belongs to something else",
    ),
    "store.slow": Kind(
        "warning",
        ("tokens", "disk_ms", "prefill_ms"),
        "reading took longer than prefilling would: the rest is prefilled",
    ),
    "store.pruned": Kind("info", ("files", "bytes", "reason"), "files were removed"),
    "watch.rearmed": Kind("info", ("directory",), "a watched folder vanished and is there again"),
    "watch.degraded": Kind(
        "warning", ("reason",), "no events from the system; the file is looked at now and then"
    ),
    "control.moved": Kind(
        "info", ("path",), "the control socket is elsewhere: its path in the state folder is too long"
    ),
    "control.failed": Kind(
        "warning", ("reason",), "commands such as `warmd status` cannot reach this daemon; the rest goes on"
    ),
    "state.failed": Kind(
        "warning",
        ("reason",),
        "the state folder cannot be written: abrupt ends are not counted; the rest goes on",
    ),
    "log.failed": Kind(
        "warning", ("path", "reason"), "the log file cannot be written; its lines go to stderr meanwhile"
    ),
    "log.repeated": Kind(
        "warning",
        ("repeated", "times", "seconds"),
        "an error came again so often, told after a minute; with the level and the texts of its first line",
    ),
    "log.dropped": Kind("warning", ("lines",), "so many lines before this one could not be written"),
}


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, ready to be logged."""

    name: str
    level: Level
    fields: Mapping[str, Any]


Emit = Callable[[Event], None]


def make_event(name: str, *, level: Level | None = None, **fields: Any) -> Event:
    """Build an event of the catalogue.

    Args:
        name: A key of `CATALOGUE`.
        level: Overrides the catalogue's level.
        fields: Exactly the catalogue's fields, in any order.

    Raises:
        ValueError: The name is unknown, or the fields are not exactly the catalogue's.
    """
    kind = CATALOGUE.get(name)
    if kind is None or set(fields) != set(kind.fields):
        raise ValueError(f"not in the event catalogue: {name} with {sorted(fields)}")
    return Event(name, level or kind.level, {key: fields[key] for key in kind.fields})


def catalogue_table() -> str:
    """The catalogue as a Markdown table, for the documentation."""
    rows = [
        f"| `{name}` | {kind.level} | {', '.join(kind.fields)} | {kind.meaning} |"
        for name, kind in CATALOGUE.items()
    ]
    return "\n".join(["| event | level | fields | meaning |", "| --- | --- | --- | --- |", *rows])
