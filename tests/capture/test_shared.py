"""What requests begin with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.explain.examples import SYSTEM, Json, make_chat, system, tool, user
from warmd.capture.errors import NothingSharedError
from warmd.capture.shared import Captured, capture
from warmd.engines.base import Chat


def assistant(text: str = "yes") -> Json:
    return {"role": "assistant", "content": text}


def messages(captured: Captured) -> list[Json]:
    return list(captured.messages)


def test_leading_system_messages_tools_and_arguments() -> None:
    developer = system("And be brief.", role="developer")
    chat = make_chat(
        system(), developer, user(), system("Not this."), tools=[tool("a")], enable_thinking=False
    )
    captured = capture([chat])
    assert messages(captured) == [system(), developer]
    assert captured.tools == (tool("a"),)
    assert captured.chat_template_kwargs == {"enable_thinking": False}
    assert captured.notes == ()


def test_a_request_without_a_user_turn() -> None:
    assert messages(capture([make_chat(system())])) == [system()]


def test_text_parts_are_joined_and_other_keys_stay_in_their_order() -> None:
    parts = [{"type": "text", "text": "One. ", "cache_control": {}}, {"type": "text", "text": "Two."}]
    message = {"content": parts, "name": "x", "role": "system"}
    (found,) = capture([make_chat(message, user())]).messages
    assert json.dumps(found) == json.dumps({"content": "One. Two.", "name": "x", "role": "system"})


def test_the_key_order_of_tools_is_the_clients() -> None:
    given = [{"function": {"name": "a", "z": 1, "b": 2}, "type": "function"}]
    assert json.dumps(capture([make_chat(tools=given)]).tools) == json.dumps(given)


def test_tools_alone_get_a_user_turn_as_a_stand_in() -> None:
    captured = capture([make_chat(user(), tools=[tool("a")])])
    assert messages(captured) == [{"role": "user", "content": ""}]
    assert captured.to_entry("x").ends_in_user_turn


COMMON: dict[str, tuple[list[list[Json]], list[Json]]] = {
    "system only": ([[system(), user("a")], [system(), user("b")]], [system()]),
    "examples": (
        [[system(), user("x"), assistant(), user("a")], [system(), user("x"), assistant(), user("b")]],
        [system(), user("x"), assistant()],
    ),
    "the same question": ([[system(), user("a")], [system(), user("a")]], [system()]),
    "the same question, another answer": (
        [[system(), user("a"), assistant("1"), user()], [system(), user("a"), assistant("2"), user()]],
        [system()],
    ),
    "one conversation": (
        [[system(), user("a")], [system(), user("a"), assistant(), user("b")]],
        [system()],
    ),
    "second system message": (
        [[system(), system("1"), user()], [system(), system("2"), user()]],
        [system()],
    ),
    "parts and text": (
        [[system(), user()], [{"role": "system", "content": [{"type": "text", "text": SYSTEM}]}, user("b")]],
        [system()],
    ),
}


@pytest.mark.parametrize(("conversations", "expected"), COMMON.values(), ids=COMMON)
def test_what_several_have_in_common(conversations: list[list[Json]], expected: list[Json]) -> None:
    assert messages(capture([make_chat(*items) for items in conversations])) == expected


def test_a_user_is_told_when_what_follows_is_no_user_turn() -> None:
    chats = [make_chat(system(), system(number), user()) for number in "12"]
    assert "no user turn" in capture(chats).notes[0]


def test_arguments_that_differ_are_left_out_and_named() -> None:
    chats = [make_chat(a=1, b=True), make_chat(a=1, b=False, c=None)]
    captured = capture(chats)
    assert captured.chat_template_kwargs == {"a": 1}
    assert captured.notes == ("chat_template_kwargs that differ are left out: b, c",)


REFUSED: dict[str, tuple[list[Chat], str]] = {
    "nothing": ([make_chat(user())], "nothing precedes"),
    "no messages": ([Chat([], None, {})], "nothing precedes"),
    "other system texts": (
        [make_chat(system(SYSTEM + " 2025-06-01")), make_chat(system(SYSTEM + " 2025-06-02"))],
        "the requests' system messages differ: a date or time differs, and nothing else in this text",
    ),
    "another text": (
        [make_chat(), make_chat(system("You are a poet."))],
        "the requests' system messages differ: from character 11 on",
    ),
    "other agents": ([make_chat(), make_chat(user())], "different messages"),
    "other tools": (
        [make_chat(tools=[tool("a")]), make_chat(tools=[tool("a", "Other.")])],
        "different tools (at tools[0].function.description)",
    ),
    "no tools in one": ([make_chat(tools=[tool("a")]), make_chat()], "different tools"),
    "image": ([make_chat(system(), {"role": "system", "content": [{"type": "image_url"}]})], "no text"),
    "content_file": ([make_chat({**system(), "content_file": "/etc/passwd"})], "content_file"),
    "surrogate": ([make_chat(system("a\ud800"))], "cannot be written"),
    "nan": ([make_chat(tools=[{"x": float("nan")}])], "cannot be written"),
    "infinite": ([make_chat(x=float("inf"))], "cannot be written"),
    "tool": ([Chat([system()], ["x"], {})], "a tool is no object"),
    "message": ([Chat(["x"], None, {})], "a message that is none"),
    "role": ([make_chat({"role": 5})], "a message that is none"),
}


@pytest.mark.parametrize(("chats", "expected"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_captured(chats: list[Chat], expected: str) -> None:
    with pytest.raises(NothingSharedError) as caught:
        capture(chats)
    assert expected in str(caught.value)


def test_no_message_holds_text() -> None:
    for chats, _ in REFUSED.values():
        with pytest.raises(NothingSharedError) as caught:
            capture(chats)
        assert "careful" not in str(caught.value)


def test_a_stand_in_is_no_text_of_the_user() -> None:
    captured: Any = capture([make_chat(user("secret"), tools=[tool("a")])])
    assert "secret" not in json.dumps([captured.messages, captured.tools])
