"""The running daemon: does it answer, what keeps it from being of use, and is it as fast as it can be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from warmd.control.protocol import one_line
from warmd.doctor.finding import Finding
from warmd.rates import read_rates

SLOW = 0.5
"""Under launchd less than this part of the terminal's rate is throttling, more is noise."""

Json = dict[str, Any]


def check_daemon(status: Json | None, error: str | None) -> Finding:
    """A daemon answers on the control socket."""
    if status is None:
        fix = "start it: `warmd restart` where the service is installed, else `warmd serve`"
        return Finding("daemon", "warning", error or "no daemon is running", fix)
    states = {state: count for state, count in status["totals"]["states"].items() if count}
    entries = ", ".join(f"{count} {state}" for state, count in states.items()) or "no entries"
    return Finding("daemon", "ok", f"pid {status['pid']}, version {status['version']}: {entries}")


def check_version(status: Json, version: str) -> Finding | None:
    """The daemon is of this version."""
    if status["version"] == version:
        return None
    what = f"the daemon is of version {status['version']}, this command of {version}"
    return Finding("version", "warning", what, "`warmd restart`, or `warmd install` after a new installation")


def check_entries(status: Json) -> Iterator[Finding]:
    """Entries that are kept away after crashes, that failed, and that requests only almost meet."""
    for entry in status["entries"]:
        name, reason = one_line(entry["name"]), one_line(entry["reason"] or "")
        if entry["state"] == "quarantined":
            fix = f"edit it, free memory, or try it again with `warmd rewarm {name}`"
            yield Finding("quarantine", "problem", f"{name}: {reason or 'ended the process twice'}", fix)
        elif entry["state"] in ("failed", "stored_not_served"):
            yield Finding("entries", "warning", f"{name} is {entry['state']}: {reason}", "see `warmd status`")
        if entry["near_misses"]:
            what = f"{name}: {entry['near_misses']:,} requests began like it and then parted from it"
            yield Finding("near misses", "warning", what, f"`warmd explain {name}` shows where and why")


def check_rates(folder: Path) -> Iterator[Finding]:
    """Prefilling is as fast under launchd as in a terminal of the same machine."""
    rates = read_rates(folder)
    both = [model for model in rates if {"launchd", "terminal"} <= set(rates[model])]
    if not both:
        what = "not measured both under launchd and in a terminal"
        yield Finding("prefill rate", "unknown", what)
    for model in both:
        yield _compare(model, rates[model])


def _compare(model: str, rate: dict[str, float]) -> Finding:
    launchd, terminal = rate["launchd"], rate["terminal"]
    what = f"{one_line(model)}: {launchd:,.0f} tokens/s under launchd, {terminal:,.0f} in a terminal"
    if launchd >= SLOW * terminal:
        return Finding("prefill rate", "ok", what)
    fix = (
        "macOS throttles the service: `warmd install` renews its ProcessType; stay logged in at the screen "
        "and on mains power, or run `warmd serve` in a terminal"
    )
    return Finding("prefill rate", "warning", what, fix)
