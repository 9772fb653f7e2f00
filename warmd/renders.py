"""What the entries render to with one model, each kept until the entry or the day is another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date

from warmd.clock import Clock
from warmd.engines.base import Engine, EngineDiedError, Identity, Prefix
from warmd.errors import ElsewhereError, NotWarmableError, RenderError
from warmd.ledger import Rendered
from warmd.prompts.document import Entry


class Renders:
    """Renders by digest of the entry.

    Args:
        engine: Renders.
        identity: The model that it renders for.
        clock: The local time.

    Attributes:
        found: By digest.
    """

    def __init__(self, engine: Engine, identity: Identity | None, clock: Clock) -> None:
        self.found: dict[str, Rendered] = {}
        self._engine = engine
        self._identity = identity
        self._clock = clock
        self._days: dict[str, date] = {}
        self._stale: set[str] = set()

    @property
    def days(self) -> frozenset[date]:
        """The days that what is rendered holds for; none where it holds for all."""
        return frozenset(self._days.values())

    @property
    def is_outdated(self) -> bool:
        """True when something was rendered for another day than it is now."""
        return bool(self._days) and self.days != {self._clock().date()}

    def renew(self, digests: Iterable[str]) -> None:
        """Render these anew the next time."""
        self._stale.update(digests)

    async def update(self, entries: Iterable[Entry], is_overtaken: Callable[[], bool]) -> bool:
        """Render what has not been rendered; False when that was overtaken by something newer."""
        self._forget_stale()
        digests = set()
        for entry in entries:
            if is_overtaken():
                return False
            digests.add(entry.digest)
            if entry.digest not in self.found:
                # The day before rendering: should it end meanwhile, what came out is looked at once more.
                today = self._clock().date()
                self._add(entry.digest, await self._render(entry), today)
        for digest in self.found.keys() - digests:
            self._forget(digest)
        return not is_overtaken()

    def _forget_stale(self) -> None:
        today = self._clock().date()
        outdated = {digest for digest, day in self._days.items() if day != today}
        for digest in self._stale | outdated:
            self._forget(digest)
        self._stale.clear()

    def _add(self, digest: str, rendered: Rendered, today: date) -> None:
        self.found[digest] = rendered
        if isinstance(rendered, Prefix) and rendered.is_daily:
            self._days[digest] = today

    def _forget(self, digest: str) -> None:
        self.found.pop(digest, None)
        self._days.pop(digest, None)

    async def _render(self, entry: Entry) -> Rendered:
        if self._identity is not None and self._identity.unwarmable is not None:
            return NotWarmableError(self._identity.unwarmable)
        if self._identity is not None and not entry.is_for(self._identity.model):
            return ElsewhereError(entry.model or "")
        try:
            return await self._engine.render(entry)
        except RenderError as error:
            return error
        except EngineDiedError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever one entry does to a template, the others go on
            # The foreign message may quote the prompt; its type does not.
            return RenderError(f"rendering failed with {type(error).__name__}")
