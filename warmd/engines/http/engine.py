"""Any server that speaks OpenAI's chat interface: warmed from outside, by requests for one token.

Nothing is known here of tokens. An entry's prefix is named by a hash of its request without the user's words;
how long it is shows when the server counts it: its request's prompt less that of the user's words alone.
What the template puts before those words makes it a few tokens less than what requests really share.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

import anyio

from warmd.engines.base import (
    Foreseen,
    Held,
    Identity,
    LiveRequest,
    Prefix,
    Reported,
    ServerStatus,
    foresee_shared,
    source_of,
)
from warmd.engines.http.server import AnswerError, ChatServer, UnreachableError, Usage
from warmd.errors import NotWarmableError
from warmd.events import Emit, make_event
from warmd.prefix.request import request_messages
from warmd.prompts.document import Entry

Request = dict[str, Any]

USER_TEXT = "Hello."
TAIL_TOKENS = 64
"""What a short user text is taken to be in a template, where the server does not answer to that alone."""
_USER: Request = {"role": "user", "content": USER_TEXT}
SHORTEST: tuple[tuple[Request, ...], ...] = ((_USER,), ({"role": "system", "content": "."}, _USER))
"""Some templates have a system message of their own where a request has none, or an empty one; others refuse
requests without, or with. The shorter of the two is nearer to what follows a prefix."""
BLOCK_TOKENS = 256
"""Servers that keep their cache in blocks serve whole ones only: this much less is still served."""
SHOWN_MODELS = 5


class HttpEngine:
    """An `Engine` over a server elsewhere.

    The server keeps the states in its own cache, where nothing can be looked at or freed from outside: what
    was warmed counts as held, a look-up is a request with another user text, and `drop` only forgets.

    Args:
        server: Where.
        model: Which of its models; None for the only one that it has.
        poll_seconds: How often to ask it for its models.
        emit: Receives `engine.unreachable`.
    """

    def __init__(
        self,
        server: ChatServer,
        model: str | None = None,
        *,
        poll_seconds: float = 5.0,
        emit: Emit = lambda event: None,
    ) -> None:
        self._server = server
        self._model = model
        self._poll_seconds = poll_seconds
        self._emit = emit
        self._generation = 0
        self._identity: Identity | None = None
        self._problem: str | None = None
        self._requests: dict[str, Request] = {}
        self._held: dict[str, Held] = {}
        self._sizes: dict[str, int] = {}
        self._tail: int | None = None
        self._is_silent = False
        self._counting = anyio.Lock()
        self._has_looked = False
        self._doubt = anyio.Event()
        # Other words each time, also after a restart: a request that comes again would be what is found.
        self._numbers = itertools.count(random.randrange(10**6))

    @property
    def identity(self) -> Identity | None:
        """The server's model; None while the server cannot be reached."""
        return self._identity

    @property
    def sees_requests(self) -> bool:
        """The server's requests go past us."""
        return False

    def held(self) -> Mapping[str, Held]:
        """What was warmed since the server was last away; it may have evicted some of it."""
        return dict(self._held)

    def memory(self) -> None:
        """The server's memory is its own concern."""

    def cost(self) -> None:
        """The server does not tell."""

    def effort(self) -> None:
        """The server does not tell."""

    def disk(self) -> None:
        """Nothing is kept here."""

    def server(self) -> ServerStatus:
        """The server, and what is wrong with it or with its model."""
        problem = self._problem or (self._identity.unwarmable if self._identity is not None else None)
        return ServerStatus(self._server.base_url, problem)

    def foresee(self, wanted: Sequence[tuple[Prefix, int]]) -> Sequence[Foreseen]:
        """What is shared is taken to be there."""
        return foresee_shared(wanted)

    def declare(self, prefixes: Collection[Prefix]) -> None:
        """Keep the requests of these prefixes only."""
        keys = {prefix.key for prefix in prefixes}
        self._requests = {key: request for key, request in self._requests.items() if key in keys}

    def follow(self, on_request: Callable[[LiveRequest], None]) -> None:
        """The server does not tell of its requests."""

    async def changed(self) -> None:
        """Return when the server came, went, or has another model."""
        before = self._identity
        while True:
            if self._has_looked:
                with anyio.move_on_after(self._poll_seconds):
                    await self._doubt.wait()
            self._has_looked, self._doubt = True, anyio.Event()
            await self._look()
            if self._identity != before:
                return

    async def render(self, entry: Entry) -> Prefix:
        """Name the entry's request; the server renders it.

        Raises:
            NotWarmableError: There is no text that precedes the user's.
        """
        if entry.has_images:
            raise NotWarmableError("image content: no text prefix can hold it")
        if len(entry.messages) == 1 and entry.ends_in_user_turn and not entry.tools:
            raise NotWarmableError("nothing precedes the user text: the only message is a user turn")
        name = json.dumps(make_request(entry, ""), separators=(",", ":"))
        prefix = Prefix((), entry.ends_in_user_turn, name=hashlib.sha256(name.encode()).hexdigest())
        self._requests[prefix.key] = make_request(entry, USER_TEXT)
        return prefix

    async def warm(self, prefix: Prefix, on_progress: Callable[[int], None]) -> Reported:
        """Send the entry's request for one token.

        Raises:
            UnreachableError: The server cannot be talked to.
            AnswerError: It refuses.
        """
        generation, request = self._generation, self._requests[prefix.key]
        # Before the entry's, which would be pushed out of a server that keeps the last request only.
        tail = await self._tail_tokens()
        usage = await self._prefill(request)
        if generation != self._generation:
            raise UnreachableError("the server was restarted meanwhile")
        self._held[prefix.key] = Held(None)
        if usage.prompt is None:
            return Reported(None, None, None)
        size = self._sizes[prefix.key] = max(1, usage.prompt - tail)
        if usage.cached is None:
            return Reported(size, None, None)
        new = min(size, max(0, usage.prompt - usage.cached))
        return Reported(size, new, size - new, source=source_of(new))

    async def look_up(self, entry: Entry, prefix: Prefix) -> int | None:
        """Send the entry's request with another user text; None when it does not tell what was cached.

        Raises:
            UnreachableError: The server cannot be talked to.
            AnswerError: It refuses.
        """
        if self._is_silent:
            return None
        usage = await self._prefill(make_request(entry, f"{next(self._numbers)} is a number."))
        # Some leave it out where nothing was cached; but a request that follows its twin has something.
        self._is_silent = usage.cached is None
        return served(usage.cached, self._sizes.get(prefix.key))

    async def drop(self, keys: Collection[str]) -> None:
        """Forget these; the server evicts them when it needs the room."""
        for key in keys:
            self._held.pop(key, None)
            self._sizes.pop(key, None)

    # --- inside ----------------------------------------------------------------------------------

    async def _look(self) -> None:
        try:
            found = choose_model(await self._server.models(), self._model)
        except (UnreachableError, AnswerError) as error:
            if isinstance(error, AnswerError) and not error.is_refusal and self._model is not None:
                # It is there. mlx_lm.server, for one, cannot list its models without a Hugging Face cache.
                self._problem = None
                self._become((self._model, None))
                return
            self._become(None)
            if str(error) != self._problem:
                self._problem = str(error)
                self._emit(make_event("engine.unreachable", url=self._server.base_url, reason=str(error)))
            return
        self._problem = None
        self._become(found)

    def _become(self, found: tuple[str, str | None] | None) -> None:
        """Start over where the model (its name, and why it cannot be used) is another than before."""
        before = self._identity
        if found == (None if before is None else (before.model, before.unwarmable)):
            return
        self._generation += 1
        self._identity = None if found is None else Identity(found[0], self._generation, found[1])
        self._tail, self._is_silent = None, False
        self._held.clear()
        self._sizes.clear()

    async def _prefill(self, request: Request) -> Usage:
        try:
            model = self._identity.model if self._identity is not None else self._model
            return await self._server.prefill({"model": model, **request})
        except UnreachableError:
            # Whether it is gone, or only broke off, shows when it is asked for its models.
            self._doubt.set()
            raise

    async def _tail_tokens(self) -> int:
        """Tokens of a request of nothing but a user text, as near as a server tells."""
        async with self._counting:
            if self._tail is None:
                sizes = [size for messages in SHORTEST if (size := await self._count(messages)) is not None]
                self._tail = min(sizes, default=TAIL_TOKENS)
            return self._tail

    async def _count(self, messages: Sequence[Request]) -> int | None:
        """Tokens of a request, or None where the server refuses it or does not tell."""
        with suppress(AnswerError):
            return (await self._prefill({"messages": list(messages)})).prompt
        return None


def make_request(entry: Entry, user_text: str) -> Request:
    """The body of an entry's chat request, without the model."""
    body: Request = {"messages": request_messages(entry, user_text)}
    if entry.tools:
        body["tools"] = list(entry.tools)
    if entry.chat_template_kwargs:
        body["chat_template_kwargs"] = entry.chat_template_kwargs
    return body


def served(cached: int | None, size: int | None) -> int | None:
    """How much of a prefix of `size` tokens is served, where a request found `cached` tokens in the cache.

    Returns:
        All of it also where no more is missing than a part of a block; None where it cannot be told.
    """
    if cached is None or size is None:
        return None
    return size if cached >= size - min(BLOCK_TOKENS, size // 2) else cached


def choose_model(models: Collection[str], wanted: str | None) -> tuple[str, str | None]:
    """The model to warm, and in one line why it cannot be, or None."""
    shown = ", ".join(sorted(models)[:SHOWN_MODELS]) + (", …" if len(models) > SHOWN_MODELS else "")
    if wanted is not None:
        # Ollama lists `name:latest` for what is asked for as `name`.
        if wanted in models or f"{wanted}:latest" in models:
            return wanted, None
        return wanted, f"the server does not have this model, but {shown or 'none'}"
    if len(models) == 1:
        return next(iter(models)), None
    if not models:
        return "", "the server has no model"
    return "", f"the server has several models: name one with --model ({shown})"
