"""What the daemon knows of near misses, for the control socket: its owner's own eyes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import anyio.to_thread

from warmd.again import UnknownEntryError
from warmd.control.errors import ControlError
from warmd.errors import WarmdError
from warmd.explain.explanation import Explanation, Rendered, explain
from warmd.status import EntryStatus
from warmd.traffic import NearMiss

if TYPE_CHECKING:
    from warmd.daemon import Daemon

WINDOW = 48
"""Tokens that are decoded on each side of the first one that differs."""


@runtime_checkable
class TellsTexts(Protocol):
    """An engine that can say what its tokens mean."""

    @property
    def template_arguments(self) -> Mapping[str, Any]:
        """What the server adds to the template arguments of every request."""

    async def decode(self, tokens: Sequence[int]) -> str:
        """The text of some token ids, special tokens included."""


def explain_handler(daemon: Daemon) -> Callable[[dict[str, Any]], Awaitable[Any]]:
    """The handler of `explain`: the near misses that are remembered, oldest first, and all that is known."""

    async def handle(arguments: dict[str, Any]) -> Any:
        name = arguments.get("name")
        if set(arguments) - {"name"} or not isinstance(name, str | None):
            raise ControlError("expected the name of an entry, or nothing")
        entries = [item for item in daemon.statistics().entries if name in (None, item.name)]
        traffic = daemon.traffic
        misses = list(traffic.near_misses) if name is None else traffic.missed(name)
        if name is not None and not entries and not misses:
            raise UnknownEntryError(name, [item.name for item in daemon.statistics().entries])
        if not daemon.engine.sees_requests:
            return {"near_misses": None, "entries": [_entry_json(item) for item in entries]}
        return {
            "near_misses": [await _near_miss_json(daemon, miss) for miss in misses],
            "entries": [_entry_json(item) for item in entries],
        }

    return handle


async def _near_miss_json(daemon: Daemon, miss: NearMiss) -> dict[str, Any]:
    explanation = await _explain(daemon, miss)
    return {
        "entry": miss.entry,
        "counted_for": miss.counted_for,
        "at": miss.at,
        "matched": miss.matched,
        "prefix_tokens": len(miss.slot.prefix),
        "request_tokens": len(miss.request.tokens),
        **explanation.to_json(),
    }


async def _explain(daemon: Daemon, miss: NearMiss) -> Explanation:
    document, engine = daemon.document, daemon.engine
    entries = document.entries if document is not None else ()
    current = next((entry for entry in entries if entry.name == miss.entry), None)
    rendered, defaults = None, dict[str, Any]()
    if isinstance(engine, TellsTexts):
        rendered, defaults = await _decode(engine, miss), dict(engine.template_arguments)
    # A prompt may be long: the daemon does not wait while two are compared.
    return await anyio.to_thread.run_sync(
        lambda: explain(
            miss.slot.entry,
            miss.request.chat,
            rendered,
            is_tokens_only=miss.request.is_tokens_only,
            current=current,
            defaults=defaults,
        ),
        abandon_on_cancel=True,
    )


async def _decode(engine: TellsTexts, miss: NearMiss) -> Rendered | None:
    start, end = max(0, miss.matched - WINDOW), miss.matched + WINDOW
    try:
        return Rendered(
            await engine.decode(miss.slot.prefix.tokens[start:end]),
            await engine.decode(miss.request.tokens[start:end]),
        )
    except WarmdError:
        # The model has just gone.
        return None


def _entry_json(status: EntryStatus) -> dict[str, Any]:
    return {
        "name": status.name,
        "state": status.state,
        "tokens": status.tokens,
        "reason": status.reason,
        "hits": status.hits,
        "tokens_saved": status.tokens_saved,
        "last_hit_at": status.last_hit_at,
        "near_misses": status.near_misses,
    }
