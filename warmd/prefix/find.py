"""The search for an entry's prefix, and the proof that the entry is in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from warmd.engines.base import Prefix
from warmd.errors import NotWarmableError
from warmd.prefix.failures import render_error
from warmd.prefix.literals import literal_texts
from warmd.prefix.probes import BASE, FIRST_CHARACTERS, PUNCTUATION
from warmd.prefix.request import Renderer, encode_request, request_messages
from warmd.prefix.vocabulary import Boundary, find_boundary, marker_texts, straddlers
from warmd.prompts.document import Entry, Message
from warmd.radix import common_length

# A render costs the tokenisation of the whole prompt: 22 + 12 + 6 + 14 + 1 + 8 = 63 at most.
_LITERALS = 12
_MARKERS = 6
_STRADDLERS = 14
_CHECKED_MESSAGES = 8
_MARGIN = 2


def find_prefix(entry: Entry, renderer: Renderer) -> Prefix:
    """Find the tokens with which every request of `entry` begins, whatever its user says.

    At most two tokens that all requests share are left out.

    Raises:
        RenderError: No request of this entry can be rendered.
        NotWarmableError: It renders, but its content does not precede the user text.
    """
    _refuse_hopeless(entry)
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
    search.repeat_first()
    _check_content(search)
    return Prefix(tuple(search.common), entry.ends_in_user_turn)


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

    def repeat_first(self) -> None:
        """A template may print the time: then another render of the same text ends what is common."""
        first = next(iter(self.renders))
        self._encode(first)
        self.ordinary = self.ordinary[: common_length(self.ordinary, self.renders[first])]

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


def _check_content(search: _Search) -> None:
    """Refuse an entry whose content the template drops, or puts after the user text.

    A message must show in what ordinary user texts share. It need not show in the prefix: a user text that
    makes the template render an earlier turn another way may end that before the turn.
    """
    if not search.common:
        raise NotWarmableError("no token precedes every user text")
    differences = [_first_difference(search, index) for index in _checked(search.entry)]
    if _is_lone_user_turn(search.entry):
        bare = search.render(request_messages(search.entry, BASE[0]), with_tools=False)
        differences = [_difference(search, bare, "tools")]
    if differences and min(differences) >= len(search.common):
        raise NotWarmableError("content not in prefix: some user texts change how all of it is rendered")


def _first_difference(search: _Search, index: int) -> int:
    changed = request_messages(search.entry, BASE[0])
    changed[index]["content"] = _other_text(changed[index]["content"])
    return _difference(search, search.render(changed), f"message {index} ({_shown_role(changed[index])})")


def _difference(search: _Search, ids: list[int] | None, what: str) -> int:
    """Where a changed render leaves the ordinary prefix; 0 for a change that the template refuses."""
    if ids is None:
        return 0
    length = common_length(search.ordinary, ids)
    if length == len(search.ordinary):
        raise NotWarmableError(f"content not in prefix: {what}")
    return length


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
