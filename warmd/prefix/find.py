"""The search for an entry's prefix, and the proof that the entry is in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from warmd.clock import TemplateClock
from warmd.engines.base import Prefix
from warmd.errors import NotWarmableError
from warmd.prefix.failures import render_error
from warmd.prefix.literals import literal_texts
from warmd.prefix.probes import BASE, FIRST_CHARACTERS, PUNCTUATION
from warmd.prefix.request import Renderer, encode_request, request_messages
from warmd.prefix.timed import Change, find_change, is_daily, volatile_error
from warmd.prefix.vocabulary import Boundary, find_boundary, marker_texts, straddlers
from warmd.prompts.document import Entry, Message
from warmd.radix import common_length

# A render costs the tokenisation of the whole prompt: 22 + 12 + 6 + 14 + 1 + 8 = 63 at most.
_LITERALS = 12
_MARKERS = 6
_STRADDLERS = 14
_CHECKED_MESSAGES = 8
_MARGIN = 2


def find_prefix(entry: Entry, renderer: Renderer, clock: TemplateClock | None = None) -> Prefix:
    """Find the tokens with which every request of `entry` begins today, whatever its user says.

    At most two tokens that all requests share are left out.

    Args:
        entry: What to render.
        renderer: With what.
        clock: The one that the renderer's templates ask. Nothing is rendered twice unless they do.

    Raises:
        RenderError: No request of this entry can be rendered.
        VolatileError: It renders, but changes by itself before all of its content has come.
        NotWarmableError: It renders, but its content does not precede the user text.
    """
    _refuse_hopeless(entry)
    clock = clock or TemplateClock()
    with clock.held(clock.now()) as reading:
        search = _search(entry, renderer)

        def render(moment: datetime) -> list[int] | None:
            with clock.held(moment):
                return search.again()

        first = search.first
        change = find_change(render, first, reading, len(search.common))
        _check_content(search, change)
        daily = is_daily(render, first, reading, len(search.common))
    if not clock.is_connected:
        # Nobody tells whether the time was asked. To render anew each day costs little.
        daily = "strftime_now" in renderer.template
    return Prefix(tuple(search.common), entry.ends_in_user_turn, daily)


def _search(entry: Entry, renderer: Renderer) -> _Search:
    """Render with every text that may disturb what precedes it."""
    search = _Search(entry, renderer)
    search.probe(BASE)
    if not search.renders:
        raise render_error(search.failures[0], entry, renderer.template) from None
    search.ordinary = search.common
    search.probe(literal_texts(renderer.template, _LITERALS))
    vocabulary = renderer.vocabulary()
    if vocabulary:
        _probe_boundary(search, vocabulary)
    else:
        search.probe(PUNCTUATION)
    return search


def _refuse_hopeless(entry: Entry) -> None:
    if entry.has_images:
        raise NotWarmableError("image content: no text prefix can hold it")
    if _is_lone_user_turn(entry) and not entry.tools:
        raise NotWarmableError("nothing precedes the user text: the only message is a user turn")


def _is_lone_user_turn(entry: Entry) -> bool:
    return len(entry.messages) == 1 and entry.ends_in_user_turn


@dataclass(slots=True)
class _Search:
    """The renders so far.

    Attributes:
        common: The tokens that all of them begin with.
        ordinary: The same for user texts that ask for nothing special of the template or the tokenizer.
    """

    entry: Entry
    renderer: Renderer
    common: list[int] = field(default_factory=list)
    ordinary: list[int] = field(default_factory=list)
    renders: dict[str, list[int]] = field(default_factory=dict)
    failures: list[Exception] = field(default_factory=list)

    def probe(self, texts: Iterable[str]) -> None:
        for text in texts:
            if text not in self.renders:
                self._encode(text)

    @property
    def first(self) -> list[int]:
        """The first render."""
        return next(iter(self.renders.values()))

    def again(self) -> list[int] | None:
        """What the same text gives now."""
        return self.render(request_messages(self.entry, next(iter(self.renders))))

    def render(self, messages: list[Message], *, with_tools: bool = True) -> list[int] | None:
        try:
            return encode_request(self.entry, self.renderer, messages, with_tools=with_tools)
        # Templates and tokenizers raise anything, and a text that one refuses is only no evidence.
        except Exception as error:  # noqa: BLE001
            self.failures.append(error)
            return None

    def _encode(self, text: str) -> None:
        ids = self.render(request_messages(self.entry, text))
        if ids is None:
            return
        self.common = ids[: common_length(self.common, ids)] if self.renders else ids
        self.renders[text] = ids

    def boundary(self, vocabulary: Sequence[str]) -> Boundary | None:
        chosen = [self.renders[BASE[i]] for i in FIRST_CHARACTERS if BASE[i] in self.renders]
        return find_boundary(chosen, len(self.common), vocabulary) if len(chosen) > 1 else None


def _probe_boundary(search: _Search, vocabulary: Sequence[str]) -> None:
    boundary = search.boundary(vocabulary)
    if boundary is None:
        return
    # Only whitespace can be swallowed; two are tried anyway.
    limit = _MARKERS if boundary.ends_in_space else 2
    search.probe(marker_texts(vocabulary, search.renderer.template, limit))
    tried, untried = 0, 0
    for straddler in straddlers(boundary, vocabulary):
        if straddler.depth <= len(boundary.dropped) or straddler.text in search.renders:
            continue
        if tried == _STRADDLERS:
            untried = max(untried, straddler.depth)
            continue
        search.probe([straddler.text])
        tried += 1
        boundary = search.boundary(vocabulary) or boundary
    # What there was no time to try is paid for with a token or two.
    margin = min(_MARGIN, boundary.tokens_within(untried))
    search.common = search.common[: len(search.common) - margin]


def _check_content(search: _Search, change: Change | None) -> None:
    """Refuse an entry whose content the template drops, puts after the user text, or after what changes.

    A message must show in what ordinary user texts share. It need not show in the prefix: a user text that
    makes the template render an earlier turn another way may end that before the turn. Nothing less than all
    of it must precede what changes by itself: then the prefix ends there.
    """
    if not search.common and change is None:
        raise NotWarmableError("no token precedes every user text")
    try:
        contents = _contents(search, with_tools=change is not None)
    except NotWarmableError:
        if change is None:
            raise
        raise volatile_error(change, (), search.renderer.template) from None
    if change is not None:
        # The tokens before a time may be others at a time that was not tried.
        end = max(0, change.position - _MARGIN)
        if any(start >= end for _, start in contents):
            raise volatile_error(change, contents, search.renderer.template)
        search.common = search.common[:end]
    if not search.common:
        raise NotWarmableError("no token precedes what changes by itself")
    if contents and min(start for _, start in contents) >= len(search.common):
        raise NotWarmableError("content not in prefix: some user texts change how all of it is rendered")


def _contents(search: _Search, *, with_tools: bool) -> list[tuple[str, int]]:
    """What the entry gives, and the token where each of it begins."""
    if _is_lone_user_turn(search.entry):
        return [_difference(search, _without_tools(search), "tools")]
    found = [_first_difference(search, index) for index in _checked(search.entry)]
    if with_tools and search.entry.tools:
        bare = _without_tools(search) or []
        # A template may have no use for tools.
        start = common_length(search.ordinary, bare)
        found += [("tools", start)] if start < len(search.ordinary) else []
    return sorted(found, key=lambda item: item[1])


def _without_tools(search: _Search) -> list[int] | None:
    return search.render(request_messages(search.entry, BASE[0]), with_tools=False)


def _first_difference(search: _Search, index: int) -> tuple[str, int]:
    changed = request_messages(search.entry, BASE[0])
    changed[index]["content"] = _other_text(changed[index]["content"])
    return _difference(search, search.render(changed), f"message {index} ({_shown_role(changed[index])})")


def _difference(search: _Search, ids: list[int] | None, what: str) -> tuple[str, int]:
    """Where a changed render leaves the ordinary prefix; at 0 for a change that the template refuses."""
    if ids is None:
        return what, 0
    length = common_length(search.ordinary, ids)
    if length == len(search.ordinary):
        raise NotWarmableError(f"content not in prefix: {what}")
    return what, length


def _checked(entry: Entry) -> list[int]:
    last = len(entry.messages) - entry.ends_in_user_turn
    indices = [index for index in range(last) if _text(entry.messages[index].get("content")).strip()]
    half = _CHECKED_MESSAGES // 2
    return indices if len(indices) <= _CHECKED_MESSAGES else indices[:half] + indices[-half:]


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))


def _other_text(content: object) -> object:
    text = "Q" if _text(content).strip() != "Q" else "7"
    return text if isinstance(content, str) else [{"type": "text", "text": text}]


def _shown_role(message: Message) -> str:
    role = message.get("role")
    return role if isinstance(role, str) and re.fullmatch(r"[a-z_]{1,16}", role) else "other role"
