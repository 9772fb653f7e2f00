"""The boundary to an inference engine: what the daemon needs, and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from warmd.disk.status import DiskStatus
from warmd.memory.cost import Cost
from warmd.memory.readings import Memory
from warmd.memory.size import format_size
from warmd.prompts.document import Entry
from warmd.radix import Tokens, pack


@dataclass(frozen=True, slots=True)
class Prefix:
    """The token ids with which every real request of an entry begins.

    Attributes:
        tokens: The ids, in order; empty only where `name` stands in for them.
        ends_in_user_turn: True when the entry's last message is a user turn and the prefix ends inside it.
        is_daily: True when it holds the date: on another local day the requests begin with other tokens.
        name: What names it in an engine that knows no tokens, such as a server elsewhere; else None.
        key: Names the prefix by its token ids: SHA-256 (hex) over them as 64-bit integers, or over `name`.
        packed: The ids once more, as a `warmd.radix` tree takes them.
    """

    tokens: tuple[int, ...]
    ends_in_user_turn: bool = False
    is_daily: bool = False
    name: str | None = None
    key: str = field(init=False)
    packed: Tokens = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        packed = pack(self.tokens)
        object.__setattr__(self, "packed", packed)
        named = packed if self.name is None else self.name.encode()
        object.__setattr__(self, "key", hashlib.sha256(named).hexdigest())

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def size(self) -> int | None:
        """Its length in tokens; None where the engine knows none."""
        return len(self.tokens) if self.name is None else None


@dataclass(frozen=True, slots=True)
class Identity:
    """What a prefix's state depends on besides its tokens.

    Attributes:
        model: The model's name or path, as shown to people.
        generation: Counts loads: a reloaded model is another identity although its name is the same.
        unwarmable: Why nothing can be kept warm for it, in one line, or None.
        fingerprint: Names the files that it was loaded from by their content; empty where that is not known.
    """

    model: str
    generation: int
    unwarmable: str | None = None
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Warmed:
    """What one warming did. Counts are tokens, sizes bytes.

    Attributes:
        tokens: Length of the prefix.
        new_tokens: Tokens that were prefilled for it now.
        reused_tokens: Tokens whose state was there before.
        kv_bytes: What the engine holds for it, or None where the engine does not tell.
        source: Where most of what was not there came from; None where nothing had to come: all of it was in a
            cache that is not ours.
        disk_tokens: Tokens whose state was read from disk now.
        disk_bytes: Bytes of the files that were read.
        disk_ms: Milliseconds that this took.
        note: Where a request may not find it, why, in one line; None where nothing speaks against it.
    """

    tokens: int
    new_tokens: int
    reused_tokens: int
    kv_bytes: int | None
    source: Literal["prefill", "disk"] | None = "prefill"
    disk_tokens: int = 0
    disk_bytes: int = 0
    disk_ms: int = 0
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Reported:
    """The same of an engine that knows only what a server reports; None is what that does not."""

    tokens: int | None
    new_tokens: int | None
    reused_tokens: int | None
    kv_bytes: int | None = None
    source: Literal["prefill", "disk"] | None = "prefill"
    disk_tokens: int = 0
    disk_bytes: int = 0
    disk_ms: int = 0
    note: str | None = None


def source_of(new_tokens: int) -> Literal["prefill"] | None:
    """What `source` is where so many tokens were not in a cache that is not ours."""
    return "prefill" if new_tokens else None


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What warming one prefix will take, as far as that can be told beforehand.

    Attributes:
        new_tokens: To be prefilled.
        disk_tokens: To be read from disk besides.
    """

    new_tokens: int
    disk_tokens: int = 0


def foresee_shared(wanted: Iterable[tuple[Prefix, int]]) -> list[Foreseen]:
    """See `Engine.foresee`: where all that is shared is gone on from."""
    return [Foreseen(len(prefix) - shared) for prefix, shared in wanted]


@dataclass(frozen=True, slots=True)
class Held:
    """One prefix that the engine holds now.

    Attributes:
        kv_bytes: Bytes of it; what several prefixes begin with counts once, for the one that came first.
    """

    kv_bytes: int | None


@dataclass(frozen=True, slots=True)
class Effort:
    """What an engine has computed for warming since it began, whatever for, and what comes first now.

    Attributes:
        tokens: Prefilled so far.
        seconds: What computing them took, without the time that live requests took in between.
        is_serving: There are live requests.
    """

    tokens: int = 0
    seconds: float = 0.0
    is_serving: bool = False


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat request as its client sent it. Never logged, never written anywhere.

    Attributes:
        messages: With their contents.
        tools: Or None.
        chat_template_kwargs: The request's own; empty where it has none.
    """

    messages: Sequence[Any] = field(repr=False)
    tools: Sequence[Any] | None = field(repr=False)
    chat_template_kwargs: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """One live request, seen as it begins.

    Attributes:
        tokens: The whole prompt.
        cached: How many of its tokens are not prefilled, whatever they came from.
        warm: How many of its tokens it began from in the warm store; 0 when something else served it better.
        chat: What its client sent; None where it was no chat, or is not seen.
        is_tokens_only: True where only the tokens are seen, and not what the client sent.
    """

    tokens: Tokens = field(repr=False)
    cached: int
    warm: int
    chat: Chat | None = None
    is_tokens_only: bool = False


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """A server elsewhere that is warmed from outside.

    Attributes:
        url: Its address.
        problem: Why nothing can be warmed there now, in one line, or None.
    """

    url: str
    problem: str | None = None


class NoRoomError(Exception):
    """A prefix does not fit into memory now.

    Args:
        needed: Bytes that the next step of warming it would take; 0 where `reason` says what is wrong.
        available: Bytes that there are.
        reason: Why there is no room, where it is not by the bytes.
    """

    def __init__(self, needed: int, available: int, reason: str | None = None) -> None:
        shown = f"needs {format_size(needed)}, {format_size(max(0, available))} are available"
        super().__init__(reason or shown)
        self.needed = needed
        self.available = available
        self.reason = reason


class EngineDiedError(Exception):
    """The engine's thread is gone: nothing can be warmed or served any more."""


class Engine(Protocol):
    """An inference engine that can keep prefixes warm.

    All methods are called from one event loop. Nothing here may block it: what takes long happens on the
    engine's own thread or in a worker thread. Cancelling `warm` stops it at the next chunk and leaves
    nothing half-done behind.
    """

    @property
    def identity(self) -> Identity | None:
        """The model that is loaded now; None while there is none."""

    @property
    def sees_requests(self) -> bool:
        """True where `follow` tells of live requests; False where nobody can say how many there were."""

    def held(self) -> Mapping[str, Held]:
        """The prefixes held for the current identity, by `Prefix.key`."""

    def memory(self) -> Memory | None:
        """How things are with the memory; None where the engine keeps no limit."""

    def cost(self) -> Cost | None:
        """What the loaded model's state costs; None while that is not known."""

    def effort(self) -> Effort | None:
        """What warming has taken so far; None where the engine does not tell."""

    def disk(self) -> DiskStatus | None:
        """What is on disk; None where the engine keeps nothing there."""

    def server(self) -> ServerStatus | None:
        """The server that this talks to; None where the engine is in this process."""

    def foresee(self, wanted: Sequence[tuple[Prefix, int]]) -> Sequence[Foreseen]:
        """What warming these prefixes will take, one after the other; called before they are declared.

        Args:
            wanted: Each with how many tokens it has in common with those that are warm or come before it:
                what there is to go on from, where an engine does not know better.
        """

    def declare(self, prefixes: Collection[Prefix]) -> None:
        """Tell every prefix that is to be held, before any is warmed: what they share is held once."""

    def follow(self, on_request: Callable[[LiveRequest], None]) -> None:
        """Call a function for each live request as it begins, on the event loop; it must not take long."""

    async def changed(self) -> None:
        """Return when `identity` or `held` may have changed other than through this object's methods.

        Raises:
            EngineDiedError: The engine cannot go on.
        """

    async def render(self, entry: Entry) -> Prefix:
        """Render an entry through the engine's own request path.

        Raises:
            RenderError: This entry cannot be rendered, or (`NotWarmableError`) not be kept warm.
        """

    async def warm(self, prefix: Prefix, on_progress: Callable[[int], None]) -> Warmed | Reported:
        """Prefill a prefix and hold its state. `on_progress` is called with the tokens done so far.

        Raises:
            NoRoomError: It does not fit into memory now; what has been done may be of use to the next try.
            Exception: Whatever the model raised; the daemon backs off and tries again.
        """

    async def look_up(self, entry: Entry, prefix: Prefix) -> int | None:
        """How many tokens a live request of this entry, with a user text of its own, would find cached.

        None where the engine has no way to tell.
        """

    async def drop(self, keys: Collection[str]) -> None:
        """Free these prefixes; unknown keys are ignored."""
