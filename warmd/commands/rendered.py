"""What a prompts file comes to with a model, for `warmd check --model`: in tokens and bytes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmd.admission import Room, admit, entry_costs
from warmd.engines.base import Prefix
from warmd.errors import ElsewhereError, RenderError
from warmd.memory.cost import Cost
from warmd.memory.readings import Limit, Memory, Meter, ReadingError
from warmd.plan import Wanted, make_plan
from warmd.prefix import find_prefix, ignores_tools
from warmd.prompts import Document, Entry
from warmd.settings import Settings

if TYPE_CHECKING:
    from warmd.engines.mlx_lm.render import RequestPath


@dataclass(frozen=True, slots=True)
class RenderedEntry:
    """One entry in tokens and bytes.

    Attributes:
        tokens: Length of its prefix; None when it cannot be kept warm.
        own: How many of them no entry that is warmed before it begins with.
        kv_bytes: What holding it takes besides those; None when that is not known.
        fits: Whether it fits under the memory limit; None when that is not known.
        shortage: Why it does not fit, or None.
        problem: Why it cannot be kept warm, or None.
        elsewhere: That it is for another model, or None.
        is_daily: True when the chat template prints the date in it.
        ignores_tools: True when it has tools, and the chat template leaves them out.
    """

    tokens: int | None = None
    own: int | None = None
    kv_bytes: int | None = None
    fits: bool | None = None
    shortage: str | None = None
    problem: str | None = None
    elsewhere: str | None = None
    is_daily: bool = False
    ignores_tools: bool = False

    @property
    def shared(self) -> int | None:
        """How many of its tokens some entry that is warmed before it begins with."""
        return None if self.tokens is None or self.own is None else self.tokens - self.own


@dataclass(frozen=True, slots=True)
class Needs:
    """What a model takes. Bytes.

    Attributes:
        model_bytes: Its weights; None when they are not known.
        cost: Of its state; None when it is not known, or cannot be kept.
        problem: Why something is not known, or why nothing can be kept warm; None when all is well.
        is_warmable: False when nothing can be kept warm.
    """

    model_bytes: int | None = None
    cost: Cost | None = None
    problem: str | None = None
    is_warmable: bool = True


@dataclass(frozen=True, slots=True)
class Rendering:
    """A document in tokens and bytes.

    Attributes:
        entries: In file order.
        needs: What the model takes.
        memory: The limit, and what of it is left once the model is loaded.
    """

    entries: tuple[RenderedEntry, ...]
    needs: Needs
    memory: Memory

    @property
    def kv_bytes(self) -> int | None:
        """What everything that fits takes together; None when it is not known."""
        if self.needs.cost is None:
            return None
        return sum(entry.kv_bytes or 0 for entry in self.entries if entry.fits)

    @property
    def count(self) -> int:
        """How many entries are for this model."""
        return sum(entry.elsewhere is None for entry in self.entries)

    @property
    def process_bytes(self) -> int | None:
        """What the process itself takes, without model and state; None when it cannot be read."""
        if self.memory.error is not None:
            return None
        return self.memory.limit - self.memory.reserve - self.memory.active - self.memory.headroom

    @property
    def fits(self) -> int | None:
        """How many entries fit; None when it is not known."""
        return None if self.needs.cost is None else sum(entry.fits is True for entry in self.entries)


def render_document(
    document: Document,
    model: str,
    settings: Settings,
    args: Any,
    chat_template_args: dict[str, Any],
    meter: Meter | None = None,
) -> Rendering:
    """Render every entry with a model's tokenizer, and count the bytes; its weights are never read.

    Args:
        document: What to render.
        model: A folder or a Hugging Face name.
        settings: Bounds.
        args: The server's flags.
        chat_template_args: One of them, parsed.
        meter: Looks at the memory; None for the real one.

    Raises:
        CannotStartError: This mlx-lm is too old, or the model cannot be loaded.
    """
    from warmd.engines.mlx_lm.seams import CHECK_SEAMS, check_seams

    check_seams(CHECK_SEAMS)
    from warmd.engines.mlx_lm.estimate import check_config
    from warmd.engines.mlx_lm.guard import MlxMeter
    from warmd.engines.mlx_lm.tokenizer import load_request_path
    from warmd.engines.model_folder import check_model_folder

    model = os.path.expanduser(model)  # noqa: PTH111 - it may be a hub name
    check_model_folder(model, needs_weights=False)
    if (folder := Path(model)).is_dir():
        # A tokenizer reads it as well, and says less clearly what is wrong with it.
        check_config(model, folder)
    renderer = load_request_path(model, chat_template_args)
    prefixes = [_render(entry, model, renderer) for entry in document.entries]
    needs = _find_needs(model, settings.warm.chunk_tokens, args)
    limit = Limit.parse(settings.memory.limit, settings.memory.reserve)
    memory = foresee(meter or MlxMeter(), limit, needs.model_bytes or 0)
    described = describe(document.entries, prefixes, needs.cost, memory)
    entries = (
        replace(found, ignores_tools=isinstance(prefix, Prefix) and ignores_tools(entry, renderer))
        for found, entry, prefix in zip(described, document.entries, prefixes, strict=True)
    )
    return Rendering(tuple(entries), needs, memory)


def foresee(meter: Meter, limit: Limit, model_bytes: int) -> Memory:
    """The memory as it would be with a model just loaded, in a process such as this one.

    The server's own parts come on top, and what computing a chunk takes; that is not known before one runs.
    """
    try:
        reading = meter.read()
    except ReadingError as error:
        return Memory.unknown(error, limit, warm=0)
    process = max(0, reading.footprint - reading.active - reading.pool)
    size = limit.bytes(reading)
    return Memory(
        limit=size,
        active=model_bytes,
        cache=0,
        warm=0,
        headroom=size - process - model_bytes - limit.reserve,
        pressure=1,
        reserve=limit.reserve,
    )


def describe(
    entries: Sequence[Entry], prefixes: Sequence[Prefix | RenderError], cost: Cost | None, memory: Memory
) -> tuple[RenderedEntry, ...]:
    """What the daemon would plan for entries while nothing is warm yet, one item for each."""
    found = {
        entry.name: prefix
        for entry, prefix in zip(entries, prefixes, strict=True)
        if isinstance(prefix, Prefix)
    }
    wanted = [
        Wanted(entry.name, found[entry.name].key, len(found[entry.name]), entry.priority, entry.index)
        for entry in entries
        if entry.name in found
    ]
    by_key = {prefix.key: prefix for prefix in found.values()}
    plan = make_plan(wanted, held=())
    if cost is not None:
        plan = admit(plan, wanted, Room(memory, cost, by_key, held=frozenset()))
    costs = {item.key: item for item in entry_costs(plan, by_key, cost)}
    first = {item.name for item in (*plan.warm, *plan.defer)}

    def item_of(entry: Entry, prefix: Prefix | RenderError) -> RenderedEntry:
        if isinstance(prefix, ElsewhereError):
            return RenderedEntry(elsewhere=str(prefix))
        if isinstance(prefix, RenderError):
            return RenderedEntry(problem=str(prefix))
        planned, short = costs[prefix.key], plan.short.get(prefix.key)
        # Another entry has the very same tokens and comes first: this one takes nothing.
        own, kv_bytes = (planned.own, planned.kv_bytes) if entry.name in first else (0, 0)
        shortage = short.reason if short else None
        if cost is None:
            return RenderedEntry(len(prefix), own, is_daily=prefix.is_daily)
        return RenderedEntry(len(prefix), own, kv_bytes, planned.fits, shortage, is_daily=prefix.is_daily)

    return tuple(item_of(entry, prefix) for entry, prefix in zip(entries, prefixes, strict=True))


def _find_needs(model: str, chunk_tokens: int, args: Any) -> Needs:
    from warmd.engines.mlx_lm.estimate import UnknownBytesError, estimate
    from warmd.engines.mlx_lm.measure import UnkeepableError

    try:
        found = estimate(model, chunk_tokens, args)
    except UnknownBytesError as error:
        return Needs(problem=f"{error}: bytes unknown")
    except UnkeepableError as error:
        return Needs(problem=str(error), is_warmable=False)
    return Needs(found.model_bytes, found.cost)


def _render(entry: Entry, model: str, renderer: RequestPath) -> Prefix | RenderError:
    if not entry.is_for(model):
        return ElsewhereError(entry.model or "")
    try:
        return find_prefix(entry, renderer, renderer.clock)
    except RenderError as error:
        return error
