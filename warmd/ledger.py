"""What the daemon knows of each entry and of each distinct prefix, for one engine identity."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from time import time

from warmd.engines.base import Effort, Held, Prefix, Reported, Warmed
from warmd.errors import ElsewhereError, NotWarmableError, RenderError, VolatileError
from warmd.plan import Wanted
from warmd.progress import Progress
from warmd.prompts.document import Document, Entry
from warmd.status import SERVED, SHOWN_HASH, EntryStatus, State

Rendered = Prefix | RenderError
STALE_NEED = 300.0
"""Seconds after which what a prefix turned out to need is not believed any more."""
USER_TURN_NOTE = "the prefix ends where the content of the last user turn begins"
UNPROVED_NOTE = "unproved: the engine does not tell what it takes from its cache"
DAILY_NOTE = "the prefix holds the date: it is warmed anew just after midnight"


@dataclass(slots=True)
class Slot:
    """One distinct prefix; entries with equal tokens share it.

    Attributes:
        entry: One of the entries it belongs to: whose request proves that it is served.
        names: The entries it belongs to, in file order; for a retired slot those it last belonged to.
        failures: Warmings in a row that failed.
        not_before: Loop time before which not to try again.
        done_tokens: While warming, tokens prefilled so far.
        progress: How fast that goes.
        counted: Its length as the engine told when it was warmed.
        is_proved: False when the engine had no way to look it up.
        hits: Live requests that began from all of it.
        tokens_saved: Tokens that these did not have to prefill.
        last_hit_at: When the last of them came, in seconds since the epoch.
        near_misses: Requests that began like it and then parted from it.
        needed: Bytes that it turned out to need when it last found no room, at the loop time `needed_at`.
        shortages: How often it found none although the plan had expected it.
        losses: Loop times of the last hour at which it was warm no longer.
        warm_seconds: What warming it has taken, also in vain.
        waits: While it is being warmed, why that stands still, if it does.
    """

    entry: Entry
    prefix: Prefix
    names: tuple[str, ...] = ()
    state: State = "pending"
    reason: str | None = None
    failures: int = 0
    not_before: float = 0.0
    done_tokens: int = 0
    progress: Progress = field(default_factory=Progress)
    counted: int | None = None
    is_proved: bool = True
    source: str | None = None
    warmed_at: float | None = None
    hits: int = 0
    tokens_saved: int = 0
    last_hit_at: float | None = None
    near_misses: int = 0
    losses: list[float] = field(default_factory=list)
    needed: int = 0
    needed_at: float = 0.0
    shortages: int = 0
    warm_seconds: float = 0.0
    waits: str | None = None

    @property
    def tokens(self) -> int | None:
        """Its length; None while that is not known."""
        return self.counted if self.prefix.size is None else self.prefix.size

    def need(self, now: float) -> int:
        """What it turned out to need, unless that was long ago: then it is worth another try."""
        return self.needed if now < self.needed_at + STALE_NEED else 0

    def note_loss(self, now: float, per_hour: int) -> float | None:
        """It was lost at a loop time; returns when to try again if that came too often, else None."""
        self.losses = [then for then in self.losses if then > now - 3600] + [now]
        return self.losses[0] + 3600 if len(self.losses) > per_hour else None

    def mark_warming(self, effort: Callable[[], Effort | None]) -> None:
        """A warming has begun; `effort` is the engine's."""
        self.state, self.done_tokens, self.progress = "warming", 0, Progress(effort)

    def mark_progress(self, done: int) -> None:
        """So many tokens of it are prefilled."""
        self.done_tokens = done
        self.progress.note(done)

    def mark_held(self, warmed: Warmed | Reported, *, cached: int | None) -> None:
        """The engine holds it; `cached` tokens is what a look-up found, None if there was no way to look."""
        self.failures, self.not_before, self.reason, self.needed, self.shortages = 0, 0.0, None, 0, 0
        self.source, self.warmed_at, self.state = warmed.source, time(), "warm"
        self.counted, self.is_proved = warmed.tokens, cached is not None
        if cached is not None and cached < (self.tokens or 0):
            self.state = "stored_not_served"
            found = f"a request finds {cached} of {self.tokens} tokens in the cache"
            self.reason = f"{found}: {warmed.note}" if warmed.note else found

    def mark_failed(self, reason: str, *, not_before: float) -> None:
        """A warming failed; try again at a loop time."""
        self.state, self.reason, self.not_before = "failed", reason, not_before
        self.failures += 1

    def mark_deferred(self, reason: str, *, not_before: float) -> None:
        """There is no room for it; try again at a loop time."""
        self.state, self.reason, self.not_before, self.done_tokens = "deferred", reason, not_before, 0

    def mark_quarantined(self, reason: str) -> None:
        """It ended the process too often; only a person tries it again."""
        self.state, self.reason, self.not_before = "quarantined", reason, math.inf

    def mark_pending(self) -> None:
        """It is not held and not being warmed (any more)."""
        self.state, self.done_tokens = "pending", 0

    def forgive(self) -> None:
        """Whatever went wrong with it before counts no more."""
        self.state, self.reason, self.failures, self.not_before = "pending", None, 0, 0.0
        self.shortages = 0


@dataclass(slots=True)
class Ledger:
    """Slots by prefix key. `retired` ones are wanted by nobody but may still be held."""

    slots: dict[str, Slot] = field(default_factory=dict)
    retired: dict[str, Slot] = field(default_factory=dict)
    problems: dict[str, RenderError] = field(default_factory=dict)

    def update(self, document: Document, renders: Mapping[str, Rendered]) -> None:
        """Take over a document. `renders` maps every entry's digest to its rendering."""
        known = {**self.retired, **self.slots}
        slots: dict[str, Slot] = {}
        names: dict[str, list[str]] = {}
        self.problems = {}
        for entry in document.entries:
            rendered = renders[entry.digest]
            if isinstance(rendered, RenderError):
                self.problems[entry.name] = rendered
                continue
            slots.setdefault(rendered.key, known.get(rendered.key) or Slot(entry, rendered))
            names.setdefault(rendered.key, []).append(entry.name)
        for key, slot in slots.items():
            slot.names = tuple(names[key])
        self.retired = {key: slot for key, slot in known.items() if key not in slots}
        self.slots = slots

    def wanted(self, document: Document, now: float) -> list[Wanted]:
        """The plan's view of the document, one item for each entry that could be rendered."""
        entries = {entry.name: entry for entry in document.entries}
        return [
            Wanted(name, key, len(slot.prefix), entries[name].priority, entries[name].index, slot.need(now))
            for key, slot in self.slots.items()
            for name in slot.names
        ]

    def keys_of(self, names: Collection[str]) -> set[str]:
        """The prefixes of some entries."""
        return {key for key, slot in self.slots.items() if not set(names).isdisjoint(slot.names)}

    def unproved(self) -> set[str]:
        """Wanted prefixes that nobody has looked up, whether they are held or not."""
        return {key for key, slot in self.slots.items() if slot.state not in ("warm", "stored_not_served")}

    def previous(self, held: Collection[str]) -> dict[str, str]:
        """Entry name to the retired prefix that it had last, of those that are held."""
        return {name: key for key, slot in self.retired.items() if key in held for name in slot.names}

    def left(self, keys: Collection[str]) -> dict[str, float]:
        """Of prefixes that are being warmed, the part that is still to be computed, 0 to 1."""
        slots = {key: self.slots[key] for key in keys if key in self.slots}
        return {key: 1 - slot.done_tokens / len(slot.prefix) for key, slot in slots.items()}

    def waiting(self, now: float) -> dict[str, float]:
        """Keys that failed and are not due yet, each with the seconds left."""
        return {key: slot.not_before - now for key, slot in self.slots.items() if slot.not_before > now}

    def prefixes(self) -> dict[str, Prefix]:
        """Every prefix that is wanted, or was wanted and may still be held, by key."""
        return {key: slot.prefix for key, slot in (*self.retired.items(), *self.slots.items())}

    def has_deferred(self) -> bool:
        """True when something waits for memory."""
        return any(slot.state == "deferred" for slot in self.slots.values())

    def warm_names(self) -> set[str]:
        """Entries whose prefix is held."""
        return {name for slot in self.slots.values() if slot.state in SERVED for name in slot.names}

    def statuses(self, document: Document | None, held: Mapping[str, Held]) -> tuple[EntryStatus, ...]:
        """One status for each entry of the document in force; those not looked at yet are pending."""
        found = {
            name: _slot_status(name, slot, held.get(key))
            for key, slot in self.slots.items()
            for name in slot.names
        }
        found |= {name: problem_status(name, error) for name, error in self.problems.items()}
        for name, key in self.previous(held).items():
            if name in found and found[name].state not in SERVED:
                found[name] = _with_note(found[name], self._serving_note(name, self.retired[key]))
        entries = document.entries if document is not None else ()
        return tuple(found.get(entry.name) or EntryStatus(entry.name) for entry in entries)

    def _serving_note(self, name: str, old: Slot) -> str:
        """What serves requests of an entry whose prefix is not warm yet."""
        new = next((slot for slot in self.slots.values() if name in slot.names), None)
        # With the same content it is the day that has changed.
        is_edited = new is None or new.entry.digest != old.entry.digest
        return f"{'the version before the edit' if is_edited else 'that of the day before'} serves until then"


def _with_note(status: EntryStatus, note: str) -> EntryStatus:
    return replace(status, reason="; ".join(filter(None, (status.reason, note))))


def problem_status(name: str, error: RenderError) -> EntryStatus:
    """The status of an entry that could not be rendered."""
    state: State = "unwarmable" if isinstance(error, NotWarmableError) else "failed"
    if isinstance(error, ElsewhereError):
        state = "pending"
    elif isinstance(error, VolatileError):
        state = "volatile"
    return EntryStatus(name, state, reason=str(error))


def _slot_status(name: str, slot: Slot, held: Held | None) -> EntryStatus:
    notes = [USER_TURN_NOTE] if slot.prefix.ends_in_user_turn else []
    notes += [UNPROVED_NOTE] if slot.state == "warm" and not slot.is_proved else []
    notes += [DAILY_NOTE] if slot.prefix.is_daily else []
    return EntryStatus(
        name,
        slot.state,
        prefix=slot.prefix.key[:SHOWN_HASH],
        tokens=slot.tokens,
        # What was stopped may say once more how far it had come.
        done_tokens=slot.done_tokens if slot.state == "warming" else 0,
        tokens_per_s=slot.progress.rate if slot.state == "warming" else None,
        kv_bytes=held.kv_bytes if held else None,
        source=slot.source,
        warmed_at=slot.warmed_at,
        hits=slot.hits,
        tokens_saved=slot.tokens_saved,
        last_hit_at=slot.last_hit_at,
        near_misses=slot.near_misses,
        warm_seconds=slot.warm_seconds,
        reason=slot.waits or slot.reason or "; ".join(notes) or None,
    )
