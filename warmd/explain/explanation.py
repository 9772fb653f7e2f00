"""Puts together what differs, and which of it comes first in the tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from warmd.engines.base import Chat
from warmd.explain.causes import Cause, volatile_reason
from warmd.explain.difference import (
    Difference,
    argument_differences,
    message_difference,
    tool_difference,
)
from warmd.explain.excerpt import Excerpt, make_excerpt
from warmd.prompts.document import Entry

_ENOUGH = 12
"""Characters in a row that a place and the rendered texts must share to be the same place."""

Since = Literal["edited", "removed"]


@dataclass(frozen=True, slots=True)
class Rendered:
    """The rendered texts around the first token that differs: the entry's and the request's."""

    entry: str
    request: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a request did not start from all of an entry.

    Attributes:
        place: Where the first difference lies, such as ``messages[0] (system)``.
        cause: The likely cause.
        message: The same for a person.
        excerpt: The texts there; None where nobody can tell them.
        also: What else differs.
        since: What happened to the entry since, if anything did.
        fits_now: True when the request would fit the entry as it is now.
    """

    place: str
    cause: Cause
    message: str
    excerpt: Excerpt | None = None
    also: tuple[Difference, ...] = ()
    since: Since | None = None
    fits_now: bool = False

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        also = [{"place": item.place, "cause": item.cause, "message": item.message} for item in self.also]
        return {
            "place": self.place,
            "cause": self.cause,
            "message": self.message,
            "excerpt": asdict(self.excerpt) if self.excerpt else None,
            "also": also,
            "since": self.since,
            "fits_now": self.fits_now,
        }


def explain(
    entry: Entry,
    chat: Chat | None,
    rendered: Rendered | None = None,
    *,
    is_tokens_only: bool = False,
    current: Entry | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Explanation:
    """Explain a near miss.

    Args:
        entry: As it was when the request came.
        chat: The request; None when it was no chat, or is not seen.
        rendered: The rendered texts around the first token that differs, where the engine can tell.
        is_tokens_only: True when the request's tokens are seen, but not what its client sent.
        current: The entry as it is now; None when there is no such entry any more.
        defaults: Template arguments that the server adds to every request.
    """
    since, fits_now = _since(entry, current, chat, defaults or {})
    shown = make_excerpt(rendered.entry, rendered.request) if rendered is not None else None
    found = differences(entry, chat, defaults or {}) if chat is not None else []
    if not found:
        first = _from_tokens(rendered) if is_tokens_only else _unseen(chat, rendered)
        return Explanation(first.place, first.cause, first.message, shown, (), since, fits_now)
    first = _first(found, rendered)
    if first.cause == "no_system" and shown is not None and rendered is not None:
        # What stands in place of the entry's system text is seen only in what was rendered.
        first = Difference(first.place, first.cause, first.message, shown)
    also = tuple(item for item in found if item.place != first.place)
    return Explanation(first.place, first.cause, first.message, first.excerpt or shown, also, since, fits_now)


def differences(entry: Entry, chat: Chat, defaults: Mapping[str, Any]) -> list[Difference]:
    """All that differs, at most one thing of the messages and one of the tools."""
    found = [message_difference(entry, chat.messages), tool_difference(entry, chat.tools)]
    return [
        *(item for item in found if item is not None),
        *argument_differences(entry, chat.chat_template_kwargs, defaults),
    ]


def _since(
    entry: Entry, current: Entry | None, chat: Chat | None, defaults: Mapping[str, Any]
) -> tuple[Since | None, bool]:
    if current is None:
        return "removed", False
    if current.digest == entry.digest:
        return None, False
    return "edited", chat is not None and not differences(current, chat, defaults)


def _first(found: list[Difference], rendered: Rendered | None) -> Difference:
    """The one that comes first in the tokens: templates put tools before or after the system text."""
    if rendered is None:
        return found[0]
    scores = [_likeness(item, rendered) for item in found]
    best = max(scores)
    if best >= _ENOUGH:
        return found[scores.index(best)]
    # A text that differs would have been recognised: it is something that shows in no text.
    if (printed := _printed_date(rendered)) is not None:
        return printed
    return next((item for item in found if not item.place.startswith("messages")), found[0])


def _printed_date(rendered: Rendered) -> Difference | None:
    reason = volatile_reason(rendered.entry, rendered.request)
    if reason is None or reason.cause != "date":
        return None
    return Difference("chat template", "date", "the chat template prints a date or time, which differs")


def _likeness(item: Difference, rendered: Rendered) -> float:
    """How long a part of a place's texts is in what was rendered; short texts count for more."""
    if item.excerpt is None:
        return 0
    return max(
        _shared(item.excerpt.before + item.excerpt.entry, rendered.entry),
        _shared(item.excerpt.before + item.excerpt.request, rendered.request),
    )


def _shared(left: str, right: str) -> float:
    size = SequenceMatcher(None, left, right, autojunk=False).find_longest_match().size
    return max(size, _ENOUGH) if left and size == len(left) else size


def _from_tokens(rendered: Rendered | None) -> Difference:
    """What to say when what the client sent is not seen: only the texts around the difference can tell."""
    reason = volatile_reason(rendered.entry, rendered.request) if rendered is not None else None
    cause: Cause = reason.cause if reason is not None else "not_seen"
    return Difference("prompt", cause, "the texts part here; what the client sent is not seen in this server")


def _unseen(chat: Chat | None, rendered: Rendered | None) -> Difference:
    """What to say when the request says just what the entry says."""
    if chat is None:
        return Difference(
            "prompt", "not_chat", "the request was no chat: its text only begins like the entry"
        )
    if rendered is not None and (printed := _printed_date(rendered)) is not None:
        return printed
    return Difference(
        "chat template",
        "template",
        "the same messages, tools and arguments were rendered another way",
    )
