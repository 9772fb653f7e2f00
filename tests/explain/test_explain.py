"""Why a request missed an entry: many ways to miss one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.explain.examples import SYSTEM, Json, make_chat, make_entry, system, tool, user
from warmd.engines.base import Chat
from warmd.explain import Excerpt, Explanation, explain
from warmd.explain.explanation import Rendered
from warmd.prompts.document import Entry

READ, WRITE, RUN = tool("read", "Reads a file."), tool("write", "Writes a file."), tool("run", "Runs it.")


def reordered(value: Json) -> Json:
    return dict(reversed(value.items()))


def short(found: Explanation) -> tuple[str, str]:
    return found.place, found.cause


def explained(entry: Entry, chat: Chat, **more: Any) -> Explanation:
    return explain(entry, chat, current=entry, **more)


LATER = {**tool("read"), "function": {**READ["function"], "description": "Reads one file."}}
REQUIRED = tool("f", parameters={"type": "object", "required": ["a", "b"]})
OTHER_REQUIRED = tool("f", parameters={"type": "object", "required": ["b", "a"]})
STRICT = {**READ, "function": {**READ["function"], "strict": True}}
DATED, UNDATED = tool("f", "As of 2025-06-01."), tool("f", "As of 2025-06-02.")

TOOLS: dict[str, tuple[list[Json] | None, list[Json] | None, str, str]] = {
    "missing": ([READ, WRITE], None, "tools", "tools_missing"),
    "empty": ([READ, WRITE], [], "tools", "tools_missing"),
    "extra": (None, [READ], "tools", "tools_extra"),
    "another order": ([READ, WRITE, RUN], [READ, RUN, WRITE], "tools[1]", "tools_order"),
    "one fewer": ([READ, WRITE, RUN], [READ, RUN], "tools[1]", "tool_missing"),
    "the last missing": ([READ, WRITE], [READ], "tools[1]", "tool_missing"),
    "one more": ([READ, RUN], [READ, WRITE, RUN], "tools[1]", "tool_extra"),
    "one more at the end": ([READ], [READ, WRITE], "tools[1]", "tool_extra"),
    "key order": ([READ, WRITE], [READ, reordered(WRITE)], "tools[1]", "tools_key_order"),
    "key order within": (
        [{**READ, "function": reordered(READ["function"])}],
        [READ],
        "tools[0].function",
        "tools_key_order",
    ),
    "description": ([WRITE, READ], [WRITE, LATER], "tools[1].function.description", "tool_changed"),
    "date": ([DATED], [UNDATED], "tools[0].function.description", "date"),
    "trailing space": (
        [tool("f", "Reads.\n")],
        [tool("f", "Reads.")],
        "tools[0].function.description",
        "trailing_space",
    ),
    "list order": ([REQUIRED], [OTHER_REQUIRED], "tools[0].function.parameters.required", "tool_changed"),
    "new key": ([READ], [STRICT], "tools[0].function.strict", "tool_changed"),
    "key gone": ([STRICT], [READ], "tools[0].function.strict", "tool_changed"),
    "value": (
        [STRICT],
        [{**READ, "function": {**READ["function"], "strict": 1}}],
        "tools[0].function.strict",
        "tool_changed",
    ),
    "flat tools": ([{"name": "a"}], [{"name": "b"}], "tools[0]", "tool_missing"),
    "tools without a name": ([{"x": 1}], [{"x": 2}], "tools[0].x", "tool_changed"),
}


@pytest.mark.parametrize(("own", "other", "place", "cause"), TOOLS.values(), ids=TOOLS)
def test_tools(own: list[Json] | None, other: list[Json] | None, place: str, cause: str) -> None:
    found = explained(make_entry(tools=own), make_chat(tools=other))
    assert short(found) == (place, cause)
    assert found.excerpt is not None
    assert found.excerpt.entry != found.excerpt.request
    assert found.also == ()


def test_the_names_of_tools_in_another_order_are_told() -> None:
    found = explained(make_entry(tools=[READ, WRITE]), make_chat(tools=[WRITE, READ]))
    assert found.message == "the tools come in another order: 'read' in the entry, 'write' in the request"


PARTS = [{"type": "text", "text": SYSTEM[:20]}, {"type": "text", "text": SYSTEM[20:]}]
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1}'}}],
}
PARSED = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}
OTHER_CALL = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 2}}}]}
ARGUMENTS = "messages[1].tool_calls[0].function.arguments.a"

MESSAGES: dict[str, tuple[list[Json], list[Json], str, str]] = {
    "another system text": (
        [system()],
        [system("Be a poet."), user()],
        "messages[0] (system)",
        "system_text",
    ),
    "another word": (
        [system()],
        [system(SYSTEM.replace("worst", "best")), user()],
        "messages[0] (system)",
        "text",
    ),
    "date": (
        [system(SYSTEM + " 2025-06-01")],
        [system(SYSTEM + " 2025-06-02"), user()],
        "messages[0] (system)",
        "date",
    ),
    "last line break": (
        [system(SYSTEM + "\n")],
        [system(), user()],
        "messages[0] (system)",
        "trailing_space",
    ),
    "no system message": ([system()], [user()], "messages[0] (system)", "no_system"),
    "extra system message": ([user("hi"), user()], [system(), user()], "messages[0] (user)", "extra_system"),
    "developer": ([system()], [system(role="developer"), user()], "messages[0] (system)", "role"),
    "second message": (
        [system(), user("a"), {"role": "assistant", "content": "b"}],
        [system(), user("a"), {"role": "assistant", "content": "c"}, user()],
        "messages[2] (assistant)",
        "text",
    ),
    "too few": ([system(), user("a"), user("b")], [system()], "messages[1]", "turn"),
    "goes on otherwise": (
        [system()],
        [system(), {"role": "assistant", "content": "hm"}],
        "messages[1] (assistant)",
        "turn",
    ),
    "a name": (
        [{**system(), "name": "x"}],
        [system(), user()],
        "messages[0].name",
        "message_field",
    ),
    "tool call": ([system(), CALL], [system(), OTHER_CALL, user()], ARGUMENTS, "message_field"),
}


@pytest.mark.parametrize(("own", "other", "place", "cause"), MESSAGES.values(), ids=MESSAGES)
def test_messages(own: list[Json], other: list[Json], place: str, cause: str) -> None:
    found = explained(make_entry(*own), make_chat(*other))
    assert short(found) == (place, cause)


SAME: dict[str, tuple[list[Json], list[Json]]] = {
    "plain": ([system()], [system(), user()]),
    "parts": ([system()], [{"role": "system", "content": PARTS}, user()]),
    "user turn at the end": ([system(), user("stand-in")], [system(), user("hello"), user("more")]),
    "arguments as text": ([system(), CALL], [system(), PARSED, user()]),
    "null": ([system(), CALL], [system(), {**CALL, "content": ""}, user()]),
    "nothing more": ([system()], [system()]),
}


@pytest.mark.parametrize(("own", "other"), SAME.values(), ids=SAME)
def test_what_renders_alike_is_no_difference(own: list[Json], other: list[Json]) -> None:
    found = explained(make_entry(*own), make_chat(*other))
    assert short(found) == ("chat template", "template")


def test_the_texts_around_the_difference() -> None:
    entry = make_entry(system(SYSTEM + " Today is 2025-06-01.\n"))
    found = explained(entry, make_chat(system(SYSTEM + " Today is 2025-06-02.\n"), user()))
    before = (SYSTEM + " Today is 2025-06-0")[-60:]
    assert found.excerpt == Excerpt(before, "1.\n", "2.\n", len(SYSTEM) + 19)


@pytest.mark.parametrize(
    ("own", "other", "defaults", "expected"),
    [
        ({"enable_thinking": True}, {"enable_thinking": False}, {}, "thinking"),
        ({"enable_thinking": True}, {}, {}, "thinking"),
        ({}, {"reasoning_effort": "high"}, {}, "thinking"),
        ({"tone": "dry"}, {"tone": "wet"}, {}, "template_argument"),
        ({"enable_thinking": True}, {}, {"enable_thinking": True}, None),
        ({}, {"enable_thinking": False}, {"enable_thinking": True}, "thinking"),
        ({"n": 1}, {"n": 1.0}, {}, "template_argument"),
    ],
)
def test_template_arguments(own: Json, other: Json, defaults: Json, expected: str | None) -> None:
    found = explained(make_entry(**own), make_chat(**other), defaults=defaults)
    assert found.cause == (expected or "template")


def test_a_flag_that_is_not_set_is_said_so() -> None:
    found = explained(make_entry(enable_thinking=True), make_chat())
    assert found.place == "chat_template_kwargs.enable_thinking"
    assert found.message == "true in the entry, not set in the request"


def test_everything_that_differs_is_listed() -> None:
    entry = make_entry(tools=[READ], enable_thinking=True)
    found = explained(entry, make_chat(system("Be a poet."), user()))
    assert short(found) == ("messages[0] (system)", "system_text")
    assert [item.cause for item in found.also] == ["tools_missing", "thinking"]


# --- what was rendered decides which difference comes first ------------------------------------------


def test_what_was_rendered_tells_which_difference_comes_first() -> None:
    entry = make_entry(tools=[READ, WRITE])
    chat = make_chat(system(SYSTEM.replace("worst", "best")), user(), tools=[READ, RUN])
    before = "<|im_start|>system\n# Tools\n" + json.dumps(READ) + "\n"
    tools_first = Rendered(before + json.dumps(WRITE), before + json.dumps(RUN))
    assert short(explained(entry, chat, rendered=tools_first)) == ("tools[1]", "tool_missing")
    text_first = Rendered(
        "<|im_start|>system\n" + SYSTEM, "<|im_start|>system\n" + SYSTEM.replace("worst", "best")
    )
    assert short(explained(entry, chat, rendered=text_first)) == ("messages[0] (system)", "text")
    assert [item.place for item in explained(entry, chat, rendered=text_first).also] == ["tools[1]"]


def test_the_default_system_prompt_is_shown_as_it_was_rendered() -> None:
    rendered = Rendered("<|im_start|>system\n" + SYSTEM, "<|im_start|>system\nYou are Qwen.<|im_end|>\n")
    found = explained(make_entry(), make_chat(user()), rendered=rendered)
    assert short(found) == ("messages[0] (system)", "no_system")
    assert found.excerpt is not None
    assert found.excerpt.request == "Qwen.<|im_end|>\n"


def test_a_date_that_the_template_prints() -> None:
    rendered = Rendered("Today Date: 01 Jun 2025\n\n", "Today Date: 02 Jun 2025\n\n")
    found = explained(make_entry(), make_chat(), rendered=rendered)
    assert short(found) == ("chat template", "date")
    assert found.excerpt is not None
    assert (found.excerpt.before, found.excerpt.entry[:1]) == ("Today Date: 0", "1")


def test_a_date_that_the_template_prints_comes_before_a_flag_that_shows_nowhere() -> None:
    rendered = Rendered("Today Date: 01 Jun 2025\n\n", "Today Date: 02 Jun 2025\n\n")
    found = explained(make_entry(), make_chat(enable_thinking=False), rendered=rendered)
    assert short(found) == ("chat template", "date")
    assert [item.cause for item in found.also] == ["thinking"]


def test_a_flag_is_shown_with_what_was_rendered() -> None:
    rendered = Rendered(
        "<|im_start|>system\ndetailed thinking on", "<|im_start|>system\ndetailed thinking off"
    )
    found = explained(make_entry(enable_thinking=True), make_chat(enable_thinking=False), rendered=rendered)
    assert found.cause == "thinking"
    assert found.excerpt is not None
    assert (found.excerpt.entry, found.excerpt.request) == ("n", "ff")


def test_what_was_no_chat() -> None:
    rendered = Rendered("system\nYou are", "system\nI am")
    found = explain(make_entry(), None, rendered, current=make_entry())
    assert short(found) == ("prompt", "not_chat")
    assert found.excerpt is not None


def test_what_is_seen_as_tokens_only_is_not_said_to_be_no_chat() -> None:
    dated = Rendered("system\nIt is 2025-06-01", "system\nIt is 2025-06-02")
    other = Rendered("system\nYou are", "system\nI am")
    for rendered, cause in ((dated, "date"), (other, "not_seen"), (None, "not_seen")):
        found = explain(make_entry(), None, rendered, is_tokens_only=True, current=make_entry())
        assert short(found) == ("prompt", cause)
        assert found.message == "the texts part here; what the client sent is not seen in this server"
        assert (found.excerpt is not None) == (rendered is not None)


# --- what happened since -----------------------------------------------------------------------------


def test_an_entry_that_was_edited_meanwhile() -> None:
    entry = make_entry()
    edited = replace(make_entry(system("Be a poet.")), digest="2")
    found = explain(entry, make_chat(system("Be a poet."), user()), current=edited)
    assert (found.since, found.fits_now) == ("edited", True)
    found = explain(entry, make_chat(system("Be a plumber."), user()), current=edited)
    assert (found.since, found.fits_now) == ("edited", False)


def test_an_entry_that_is_gone_or_as_it_was() -> None:
    assert explain(make_entry(), make_chat(user())).since == "removed"
    assert explained(make_entry(), make_chat(user())).since is None


# --- whatever clients send ---------------------------------------------------------------------------

STRANGE: list[Any] = [
    [],
    [None],
    ["text"],
    [{"content": 5}],
    [{"role": "system"}],
    [{"role": "system", "content": [None, 5, {"type": "image_url"}, {"type": "text", "text": 7}]}],
    [{"role": ["x"], "content": {"a": 1}}],
    [system(), {"role": "assistant", "tool_calls": [None, {"function": {"arguments": "{"}}, 7]}],
]


@pytest.mark.parametrize("messages", STRANGE)
@pytest.mark.parametrize("tools", [None, [None], ["x", 1], [{"function": 5}]])
def test_nothing_that_a_client_sends_breaks_it(messages: Any, tools: Any) -> None:
    for entry in (make_entry(), make_entry(system(), PARSED, tools=[READ])):
        found = explained(entry, Chat(messages, tools, {"x": [1]}))
        assert json.loads(json.dumps(found.to_json()))["place"] == found.place
