"""What is captured from a request and saved begins that request, token for token."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.explain.examples import Json, make_chat, system, tool, user
from tests.toys import CHATML, KINDS, make_tokenizer
from warmd.capture.save import save
from warmd.capture.shared import capture
from warmd.engines.base import Chat
from warmd.engines.mlx_lm.render import RequestPath
from warmd.prefix import find_prefix
from warmd.prompts import MAX_BYTES, load_document
from warmd.radix import common_length

SYSTEM = "\n You are a careful reviewer of code.\r\nAnswer briefly, and don't guess: 12 or 123?\n\n" * 4
WITH_ARGUMENTS = "{{- 'thinking ' + (thinking or 'off') + '\\n' }}" + CHATML
TOOL = {"function": {"parameters": {"b": 1, "a": [None, 1.0, "é\u2028"]}, "name": "x"}, "type": "function"}

REQUESTS: dict[str, Chat] = {
    "system": make_chat(system(SYSTEM), user("hello there")),
    "tools": make_chat(system(SYSTEM), user("hello"), tools=[TOOL, tool("a")]),
    "tools only": make_chat(user("hello"), tools=[TOOL]),
    "parts": make_chat(
        {"role": "system", "content": [{"type": "text", "text": t} for t in (SYSTEM, "x")]}, user()
    ),
    "arguments": make_chat(system(SYSTEM), user(" hi"), tools=[TOOL], thinking="on"),
    "conversation": make_chat(
        system("Be\nbrief."), user("\n12"), {"role": "assistant", "content": "ok"}, user()
    ),
    "nothing follows": make_chat(system(SYSTEM)),
}


def tokens(path: RequestPath, chat: Chat) -> list[int]:
    given: Any = copy.deepcopy((list(chat.messages), chat.tools, dict(chat.chat_template_kwargs)))
    return path.encode(*given)


@pytest.mark.parametrize("template", [CHATML, WITH_ARGUMENTS], ids=["plain", "with arguments"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chat", REQUESTS.values(), ids=REQUESTS)
def test_the_saved_entry_begins_the_request(chat: Chat, kind: str, template: str, tmp_path: Path) -> None:
    captured = capture([chat])
    save(tmp_path / "prompts.json", "x", captured, replace=False, max_bytes=MAX_BYTES)
    (entry,) = load_document(tmp_path / "prompts.json").entries
    path = RequestPath(make_tokenizer(kind, template), {})
    prefix = find_prefix(entry, path)
    request = tokens(path, chat)
    size = len(prefix)
    if not any(message["role"] == "user" for message in chat.messages):
        # No user's turn follows, with whose header the prefix ends.
        size = common_length(list(prefix.tokens), request)
        assert size > len(prefix) - 12
    assert list(prefix.tokens[:size]) == request[:size]
    assert prefix == find_prefix(captured.to_entry("x"), path)


def test_what_several_requests_share_begins_each() -> None:
    examples = [system(SYSTEM), user("12?"), {"role": "assistant", "content": "123."}]
    chats = [make_chat(*examples, user(text), tools=[TOOL]) for text in ("a", "\n", " b", "1")]
    captured = capture(chats)
    assert list(captured.messages) == examples
    path = RequestPath(make_tokenizer("llama3"), {})
    prefix = list(find_prefix(captured.to_entry("x"), path).tokens)
    requests = [tokens(path, chat) for chat in chats]
    assert [request[: len(prefix)] == prefix for request in requests] == [True] * len(chats)
    # And there is little more that they share.
    assert len(prefix) >= common_length(requests[0], requests[1]) - 2


def test_what_is_captured_is_not_what_a_server_changes_in_place() -> None:
    parts: Json = {"role": "system", "content": [{"type": "text", "text": "One."}]}
    chat = make_chat(parts, user())
    captured = capture([chat])
    RequestPath(make_tokenizer(), {}).encode(list(captured.messages), None, {})
    assert chat.messages[0] is parts
    assert isinstance(parts["content"], list)
