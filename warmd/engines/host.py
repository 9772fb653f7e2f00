"""Any async engine that streams from text: vllm-mlx's, and whatever keeps that contract."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from warmd.engines.base import (
    Foreseen,
    Held,
    Identity,
    LiveRequest,
    Prefix,
    Warmed,
    foresee_shared,
    source_of,
)
from warmd.engines.host_text import HostText
from warmd.errors import WarmdError
from warmd.prefix import find_prefix
from warmd.prompts.document import Entry

T = TypeVar("T")

POLL_SECONDS = 5.0
"""How often the host is asked whether it has another tokenizer, which is how a new model shows."""


class UnfinishedStreamError(WarmdError):
    """The host ended a stream without an output that is finished."""

    def __init__(self) -> None:
        super().__init__("the engine's stream ended before it was finished")


class HostEngine:
    """An `Engine` over a host's async engine object.

    The host keeps the states in its own prefix cache, where nothing can be looked at or freed from outside:
    what was warmed counts as held, a look-up is a request of one token, and `drop` only forgets. Use it from
    the host's event loop.

    Args:
        host: Has ``tokenizer`` and ``stream_generate(prompt=…, max_tokens=…, temperature=…)``, an async
            generator of outputs with ``finished``, ``prompt_tokens`` and, if it can tell,
            ``cached_tokens``. A tokenizer of None means that no model is loaded yet.
        poll_seconds: How often to look for another model.
    """

    def __init__(self, host: Any, *, poll_seconds: float = POLL_SECONDS) -> None:
        self._host = host
        self._poll_seconds = poll_seconds
        # One thread at a time, because all of them use the same copy of the tokenizer.
        self._thread = anyio.CapacityLimiter(1)
        self._numbers = itertools.count(1)
        self._generation = 0
        self._tokenizer: Any = None
        self._text: HostText | None = None
        self._held: dict[str, Held] = {}
        self._can_tell_cached = False
        self._refresh()

    @property
    def identity(self) -> Identity | None:
        """The host's model by the name that it gives, or by its type's."""
        self._refresh()
        is_loading = hasattr(self._host, "tokenizer") and self._tokenizer is None
        return None if is_loading else Identity(self._model, self._generation)

    @property
    def sees_requests(self) -> bool:
        """The host's requests go past us."""
        return False

    def held(self) -> Mapping[str, Held]:
        """What was warmed since the model was loaded; the host may have evicted some of it."""
        self._refresh()
        return dict(self._held)

    def memory(self) -> None:
        """The host keeps no limit of ours."""

    def cost(self) -> None:
        """The host does not tell."""

    def effort(self) -> None:
        """The host does not tell."""

    def disk(self) -> None:
        """Nothing: the host's cache is its own."""

    def server(self) -> None:
        """The engine is in this process."""

    def foresee(self, wanted: Sequence[tuple[Prefix, int]]) -> Sequence[Foreseen]:
        """What is shared is taken to be there."""
        return foresee_shared(wanted)

    def declare(self, prefixes: Collection[Prefix]) -> None:
        """The host has its own idea of what prefixes share."""

    def follow(self, on_request: Callable[[LiveRequest], None]) -> None:
        """The host does not tell of its requests."""

    async def changed(self) -> None:
        """Return when the host has another tokenizer."""
        generation = self._generation
        while generation == self._generation:
            await anyio.sleep(self._poll_seconds)
            self._refresh()

    async def render(self, entry: Entry) -> Prefix:
        """Find the prefix, shortened to what a text can stand for.

        Raises:
            RenderError: See `Engine.render`.
        """
        return await self._in_thread(lambda text: _find_text_prefix(entry, text))

    async def warm(self, prefix: Prefix, on_progress: Callable[[int], None]) -> Warmed:
        """Have the host generate one token after the prefix.

        Raises:
            UnfinishedStreamError: The stream ended early.
            Exception: Whatever the host raises.
        """
        generation, size = self._generation, len(prefix)
        text, _ = await self._in_thread(lambda text: text.longest_text(prefix.tokens))
        output = await self._generate(text)
        on_progress(size)
        cached, total = _count(output, "cached_tokens"), _count(output, "prompt_tokens")
        self._can_tell_cached = cached is not None
        new = size if cached is None else min(size, max(0, (total or size) - cached))
        if generation == self._generation:
            self._held[prefix.key] = Held(None)
        return Warmed(size, new, size - new, None, source_of(new))

    async def look_up(self, entry: Entry, prefix: Prefix) -> int | None:
        """Send a request of one token; None when the host's outputs do not tell what was cached."""
        if not self._can_tell_cached:
            return None
        # Another text each time, or the request itself would be what the host finds in its cache.
        user_text = f"{next(self._numbers)} is a number."
        text = await self._in_thread(lambda text: text.request(entry, user_text))
        return _count(await self._generate(text), "cached_tokens")

    async def drop(self, keys: Collection[str]) -> None:
        """Forget these prefixes; the host evicts them when it needs the room."""
        for key in keys:
            self._held.pop(key, None)

    # --- inside ----------------------------------------------------------------------------------

    @property
    def _model(self) -> str:
        name = getattr(self._host, "model_name", None) or getattr(self._host, "_model_name", None)
        return str(name or type(self._host).__name__)

    def _refresh(self) -> None:
        """Start over when the host has another tokenizer: then it has another model, too."""
        tokenizer = getattr(self._host, "tokenizer", None)
        if self._generation and tokenizer is self._tokenizer:
            return
        self._generation += 1
        self._tokenizer, self._text, self._can_tell_cached = tokenizer, None, False
        self._held.clear()

    async def _in_thread(self, work: Callable[[HostText], T]) -> T:
        return await anyio.to_thread.run_sync(self._with_text, work, limiter=self._thread)

    def _with_text(self, work: Callable[[HostText], T]) -> T:
        tokenizer, text = self._tokenizer, self._text
        if text is None:
            # vllm-mlx asks every model to think, but those that are named after code.
            text = HostText(tokenizer, thinks="coder" not in self._model.lower())
            if tokenizer is self._tokenizer:
                self._text = text
        return work(text)

    async def _generate(self, text: str) -> Any:
        """Run the host's stream for one token and to its end; returns the output that is finished."""
        finished = None
        stream = self._host.stream_generate(prompt=text, max_tokens=1, temperature=0.0)
        async with AsyncExitStack() as stack:
            if isinstance(stream, AsyncGenerator):
                stack.push_async_callback(stream.aclose)
            async for output in stream:
                finished = output if output.finished else finished
        if finished is None:
            raise UnfinishedStreamError
        return finished


def _find_text_prefix(entry: Entry, text: HostText) -> Prefix:
    prefix = find_prefix(entry, text, text.clock)
    length = text.longest_text(prefix.tokens)[1]
    return replace(prefix, tokens=prefix.tokens[:length])


def _count(output: Any, name: str) -> int | None:
    value = getattr(output, name, None)
    return None if value is None else int(value)
