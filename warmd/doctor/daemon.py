"""The running daemon: does it answer, what keeps it from being of use, and is it as fast as it can be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import join, quote
from typing import Any

from warmd.crash.suspects import Suspect, Suspects, happened, way_out
from warmd.doctor.commands import INSTALL, RESTART
from warmd.doctor.finding import Finding
from warmd.rates import read_rates
from warmd.text import counted, one_line

SLOW = 0.5
"""Under launchd less than this part of the terminal's rate is throttling, more is noise."""

Json = dict[str, Any]


def check_daemon(
    status: Json | None,
    error: Exception | None,
    start: str = "`warmd serve --model M`",
    *,
    is_hung: bool = False,
    again: str = RESTART,
) -> Finding:
    """A daemon answers on the control socket.

    Args:
        status: What it says.
        error: Why it says nothing.
        start: The command that starts one.
        is_hung: It is there all the same.
        again: What puts another in its place.
    """
    if status is None:
        what = str(error or "no daemon is running")
        if is_hung:
            return Finding("daemon", "problem", what, f"wait; then {again}")
        return Finding("daemon", "warning", what, f"start it: {start}")
    states = {state: count for state, count in status["totals"]["states"].items() if count}
    entries = ", ".join(f"{count} {state}" for state, count in states.items()) or "no entries"
    return Finding("daemon", "ok", f"pid {status['pid']}, version {status['version']}: {entries}")


def check_loaded(status: Json, folder: Path | None) -> Finding:
    """The running daemon has a model.

    Args:
        status: What it says.
        folder: Where that model is on this disk, where that is known.
    """
    model, server = status["model"], status.get("server")
    if server is not None:
        found = f"{one_line(model)} at {one_line(server['url'])}" if model else "the server has none now"
        return Finding("model", "ok" if model else "unknown", found)
    if not model:
        return Finding("model", "unknown", "the daemon has none loaded yet")
    return Finding("model", "ok", str(folder or one_line(model)))


def check_server(server: Json) -> Finding:
    """The server that a sidecar warms answers, and has the model."""
    url, problem = one_line(server["url"]), server["problem"]
    if problem is None:
        return Finding("server", "ok", f"{url} answers")
    fix = "start it, or start the sidecar with another --base-url or --model; it is asked again by itself"
    return Finding("server", "problem", f"{url}: {one_line(problem)}", fix)


def check_version(status: Json, version: str, again: str = RESTART) -> Iterator[Finding]:
    """The daemon is of this version.

    Args:
        status: What it says.
        version: This one.
        again: What puts another in its place.
    """
    if status["version"] == version:
        return
    what = f"the daemon is of version {status['version']}, this command of {version}"
    yield Finding("version", "warning", what, _renewed(again))


def _renewed(again: str) -> str:
    return f"{again}, or {INSTALL} after a new installation" if again == RESTART else again


def check_entries(status: Json) -> Iterator[Finding]:
    """Entries that are kept away after crashes, that failed, and that requests only almost meet."""
    for entry in status["entries"]:
        name, reason = one_line(entry["name"]), one_line(entry["reason"] or "")
        if entry["state"] == "quarantined":
            # What to do comes with its name here.
            what = f"{name}: {reason.removesuffix(f': {way_out()}')}"
            yield Finding("quarantine", "problem", what, way_out(quote(name)))
        elif entry["state"] in ("failed", "stored_not_served"):
            yield Finding("entries", "warning", f"{name} is {entry['state']}: {reason}", "see `warmd status`")
        if entry["near_misses"]:
            what = f"{name}: {counted(entry['near_misses'], 'request')} began like it and then parted from it"
            yield Finding(
                "near misses", "warning", what, f"`warmd explain {quote(name)}` shows where and why"
            )


@dataclass(frozen=True, slots=True)
class Starting:
    """What a daemon would warm for if it were started now, as far as that can be told without one.

    Attributes:
        model: Its name; None where it is not known, and then neither are the others.
        fingerprint: Of the model's files; None where it is not known.
        limit: The memory limit, as it is set.
    """

    model: str | None
    fingerprint: str | None = None
    limit: str = ""

    def is_about(self, suspect: Suspect) -> bool:
        """False for a suspect of another model, other files of it, or another limit: it would be tried."""
        if self.model is None:
            return True
        is_same = (suspect.model, suspect.limit) == (self.model, self.limit)
        return is_same and self.fingerprint in (None, suspect.fingerprint)


def check_suspects(suspects: Suspects, starting: Starting) -> Iterator[Finding]:
    """What a daemon would not warm if it were started now, where none runs that could tell.

    An edit is not seen here: whether the text is the same only the model's tokenizer could tell.

    Args:
        suspects: As the next start will find them.
        starting: What it would warm for.
    """
    for suspect in suspects.ended:
        if not suspect.is_quarantined or not starting.is_about(suspect):
            continue
        names, again = one_line(", ".join(suspect.entries)), one_line(join(suspect.entries))
        what = (
            f"{names}: {happened(suspect.ends)} (model {one_line(suspect.model)}); "
            f"unless {_changed(starting)} since, it is not warmed"
        )
        yield Finding("quarantine", "problem", what, f"{way_out(again)} once the daemon runs")


def _changed(starting: Starting) -> str:
    """What may be another by now and has not been looked at."""
    if starting.model is None:
        return "it, the model or [memory] limit was changed"
    return "it was edited" if starting.fingerprint else "it or the model's files were changed"


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
