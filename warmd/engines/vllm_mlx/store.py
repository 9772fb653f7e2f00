"""What the two kinds of vllm-mlx's engines have in common, for who keeps prefixes warm in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from warmd.engines.base import Effort, Foreseen, Held, Prefix, Warmed
from warmd.engines.vllm_mlx.render import RequestPath
from warmd.prefix import request_messages
from warmd.prompts.document import Entry

LOOK_UP_TEXT = "7 is a number."


class Store(Protocol):
    """The warm prefixes of one engine. Used on the server's event loop."""

    @property
    def sees_requests(self) -> bool:
        """Whether requests pass by here."""

    def effort(self) -> Effort | None:
        """What warming has been computing; None where the engine does not tell."""

    def foresee(self, wanted: Sequence[tuple[Prefix, int]]) -> Sequence[Foreseen]:
        """See `Engine.foresee`."""

    def held(self) -> Mapping[str, Held]:
        """What a request would get."""

    async def cut(self, prefix: Prefix, entry: Entry, path: RequestPath) -> Prefix:
        """An entry's prefix as the engine keeps it."""

    async def warm(
        self, prefix: Prefix, entry: Entry, path: RequestPath, on_progress: Callable[[int], None]
    ) -> Warmed:
        """Get a prefix into the engine's cache.

        Raises:
            NoRoomError: There is no room for it beside the other warm prefixes.
            RenderError: The engine is gone.
        """

    async def look_up(self, entry: Entry, path: RequestPath) -> int:
        """How many tokens of an entry's request the engine would not prefill."""

    async def drop(self, keys: Collection[str]) -> None:
        """Free prefixes; unknown keys are ignored."""


def arguments_of(entry: Entry) -> tuple[list[Any], list[Any] | None, dict[str, Any]]:
    """Messages, tools and template arguments of a request of an entry, with a user text of our own."""
    tools = list(entry.tools) if entry.tools else None
    return request_messages(entry, LOOK_UP_TEXT), tools, dict(entry.chat_template_kwargs)
