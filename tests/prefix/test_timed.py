"""Prefixes of templates that print the time, through mlx-lm's own request path."""

from __future__ import annotations

import copy
import re
import threading
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.prefix.requests import WEATHER_TOOL, make_entry, system, user
from tests.toys import CHATML, make_tokenizer
from warmd.engines.base import Prefix
from warmd.engines.mlx_lm.render import RequestPath
from warmd.errors import NotWarmableError, VolatileError
from warmd.prefix import find_prefix, request_messages
from warmd.prompts.document import Entry, Message

NOON = datetime(2026, 11, 30, 12, 0, 0)
RULES = make_entry(system("You are a careful reviewer of code. Answer briefly, and don't guess."))
TEMPLATE_FOLDER = Path(__file__).parents[3] / "shared" / "templates"


class Counting(RequestPath):
    """Counts the renders."""

    renders = 0

    def encode(self, messages: list[Message], tools: object, kwargs: object) -> list[int]:
        self.renders += 1
        return super().encode(messages, tools, kwargs)  # type: ignore[arg-type]


def make_path(template: str, kind: str = "gpt2") -> Counting:
    return Counting(make_tokenizer(kind, template), {})


def prefix_at(moment: datetime, template: str, entry: Entry = RULES) -> Prefix:
    path = make_path(template)
    path.clock.now = lambda: moment
    return find_prefix(entry, path, path.clock)


def printing(template_format: str) -> str:
    return "{{- 'Today Date: ' + strftime_now('" + template_format + "') + '\\n' }}\n" + CHATML


# Which templates depend on the time.


def test_a_template_without_a_clock_costs_no_render_more_than_without_looking_for_one() -> None:
    path, other = make_path(CHATML), make_path(CHATML)
    assert find_prefix(RULES, path, path.clock) == find_prefix(RULES, other)
    assert path.renders == other.renders <= 64


def test_a_template_that_prints_the_date_gives_a_daily_prefix_at_the_cost_of_one_render() -> None:
    template = printing("%d %b %Y")
    path, plain = make_path(template), make_path(CHATML)
    assert find_prefix(RULES, path, path.clock).is_daily
    find_prefix(RULES, plain, plain.clock)
    # The literals of the two templates are the same.
    assert path.renders == plain.renders + 1


def test_the_date_is_that_of_the_clock_and_another_day_gives_other_tokens() -> None:
    template = printing("%d %b %Y")
    late, early = datetime(2026, 11, 30, 23, 59, 59), datetime(2026, 12, 1, 0, 0, 1)
    assert prefix_at(NOON, template) == prefix_at(late, template)
    assert prefix_at(late, template).key != prefix_at(early, template).key
    tokenizer = make_tokenizer("gpt2", template)
    assert "01 Dec 2026" in str(tokenizer.decode(list(prefix_at(early, template).tokens)))


@pytest.mark.parametrize(
    ("template_format", "often"),
    [
        ("%H:%M:%S", "every second"),
        ("%Y-%m-%dT%H:%M", "every minute"),
        ("%d %b, %H h", "in the course of the day"),
        ("%p", "in the course of the day"),
    ],
)
def test_a_template_that_prints_the_time_of_day_makes_an_entry_volatile(
    template_format: str, often: str
) -> None:
    with pytest.raises(VolatileError) as caught:
        prefix_at(NOON, printing(template_format))
    position = caught.value.position
    assert str(caught.value) == (
        f"the chat template prints the time {template_format!r} (line 1 of the chat template), which changes "
        f"{often}, at token {position}, before message 0 (system)"
    )
    tokenizer = make_tokenizer("gpt2", CHATML)
    assert 0 < position <= len(tokenizer.encode("Today Date: 30 Nov, 2026"))


def test_a_greeting_that_changes_once_a_day_is_noticed() -> None:
    greeting = "{{- 'Good evening' if strftime_now('%H') | int >= 22 else 'Good day' }}"
    with pytest.raises(VolatileError, match="in the course of the day"):
        prefix_at(NOON, greeting + CHATML)


def test_what_is_asked_only_at_some_hours_is_noticed() -> None:
    rare = "{{- strftime_now('%M') if strftime_now('%H') == '12' else 'whenever' }}"
    for hour in (12, 17):
        with pytest.raises(VolatileError):
            prefix_at(NOON.replace(hour=hour), rare + CHATML)


def test_a_time_that_is_asked_for_and_not_printed_changes_nothing() -> None:
    template = "{%- set today = strftime_now('%Y-%m-%d %H:%M:%S') %}" + CHATML
    assert prefix_at(NOON, template) == prefix_at(NOON, CHATML)


def test_a_time_behind_the_user_text_changes_nothing() -> None:
    template = CHATML + "{{- strftime_now('%H:%M:%S') }}"
    assert prefix_at(NOON, template) == prefix_at(NOON, CHATML)


def test_a_prefix_ends_at_a_time_that_follows_all_of_the_content() -> None:
    clock = "{{- strftime_now('%H:%M:%S') + '<|im_end|>\\n' }}"
    template = (
        "{{- messages[0].content + '<|im_end|>\\n' }}" + clock + "{{- messages[1].content + '<|im_end|>' }}"
    )
    prefix = prefix_at(NOON, template)
    shown = str(make_tokenizer("gpt2", template).decode(list(prefix.tokens)))
    assert "don't guess." in shown
    assert "12:" not in shown
    assert prefix == prefix_at(NOON + timedelta(days=40, hours=5, minutes=7, seconds=9), template)


def test_a_time_before_the_tools_makes_an_entry_volatile_also_when_its_messages_come_before() -> None:
    template = (
        "{{- messages[0].content + '<|im_end|>' + strftime_now('%H:%M:%S') + '<|im_end|>' }}"
        "{{- tools | tojson }}{{- messages[-1].content }}"
    )
    entry = make_entry(system("Be kind and brief."), tools=[WEATHER_TOOL])
    with pytest.raises(VolatileError, match=r"before tools$"):
        prefix_at(NOON, template, entry)


def test_the_format_is_not_shown_where_it_comes_out_of_the_entry() -> None:
    entry = make_entry(system("Be kind."), kwargs={"clock": "secret %H:%M"})
    with pytest.raises(VolatileError) as caught:
        prefix_at(NOON, "{{- strftime_now(clock) }}" + CHATML, entry)
    assert "secret" not in str(caught.value)


def test_content_that_a_template_drops_is_still_called_so() -> None:
    with pytest.raises(NotWarmableError, match="content not in prefix"):
        prefix_at(NOON, "{{- strftime_now('%Y') }}{{- messages[-1].content }}")


def test_a_renderer_whose_clock_nobody_asks_is_looked_at_again_each_day() -> None:
    path = make_path(printing("%d %b %Y"))
    assert find_prefix(RULES, path).is_daily
    assert not find_prefix(RULES, make_path(CHATML)).is_daily


# Live requests go on as before.


def test_the_tokenizer_that_serves_is_left_alone() -> None:
    serving = make_tokenizer("gpt2", printing("%Y-%m-%d"))
    source = serving.chat_template
    path = RequestPath(copy.deepcopy(serving), {})
    with path.clock.held(datetime(1999, 12, 31)):
        ours = path.encode([user("hi")], None, {})
        theirs = serving.apply_chat_template([user("hi")], add_generation_prompt=True, tokenize=False)
    assert "1999-12-31" in str(serving.decode(ours))
    assert datetime.now().strftime("%Y-%m-%d") in theirs
    assert serving.chat_template is source


def test_other_threads_render_the_real_time_while_a_prefix_is_searched() -> None:
    path = make_path(printing("%Y"))
    found: list[list[int]] = []

    def request() -> None:
        found.append(path.encode([user("hi")], None, {}))

    with path.clock.held(datetime(1999, 12, 31)):
        thread = threading.Thread(target=request)
        thread.start()
        thread.join()
    assert datetime.now().strftime("%Y") in str(make_tokenizer("gpt2", CHATML).decode(found[0]))


def test_the_clock_stays_connected_when_transformers_has_forgotten_the_template() -> None:
    from transformers.utils import chat_template_utils

    path = make_path(printing("%Y"))
    chat_template_utils._compile_jinja_template.cache_clear()
    assert find_prefix(RULES, path, path.clock).is_daily


# Laws.


@settings(max_examples=15)
@given(
    template_format=st.sampled_from(["%d %b %Y", "%A", "%B %Y", "%j", "%x"]),
    moment=st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)),
    other=st.times(),
    text=st.text(max_size=12),
)
def test_requests_at_any_time_of_the_day_begin_with_its_prefix(
    template_format: str, moment: datetime, other: object, text: str
) -> None:
    path = make_path(printing(template_format))
    path.clock.now = lambda: moment
    tokens = list(find_prefix(RULES, path, path.clock).tokens)
    with path.clock.held(datetime.combine(moment.date(), other)):  # type: ignore[arg-type]
        request = path.encode(request_messages(RULES, text.encode("utf-8", "ignore").decode()), None, {})
    assert request[: len(tokens)] == tokens


REAL = {
    "openai-gpt-oss-120b": True,
    "Mistral-Small-3.2-24B-Instruct-2506": False,
    "ibm-granite-granite-3.3-2B-Instruct": False,
}


@pytest.mark.skipif(
    not TEMPLATE_FOLDER.is_dir(), reason="the folder shared/templates is not beside this repository"
)
@pytest.mark.parametrize("name", REAL)
def test_real_templates_with_a_system_message_print_the_date_or_do_not(name: str) -> None:
    template = (TEMPLATE_FOLDER / f"{name}.jinja").read_text("utf-8")
    prefix = prefix_at(NOON, template)
    assert prefix.is_daily is REAL[name]
    assert (prefix_at(NOON + timedelta(days=1), template).key != prefix.key) is REAL[name]


@pytest.mark.skipif(
    not TEMPLATE_FOLDER.is_dir(), reason="the folder shared/templates is not beside this repository"
)
@pytest.mark.parametrize(
    "name", ["Mistral-Small-3.2-24B-Instruct-2506", "ibm-granite-granite-3.3-2B-Instruct"]
)
def test_real_templates_print_the_date_in_their_default_system_message(name: str) -> None:
    template = (TEMPLATE_FOLDER / f"{name}.jinja").read_text("utf-8")
    entry = make_entry(user("12?"), {"role": "assistant", "content": "It's 12."})
    assert prefix_at(NOON, template, entry).is_daily


@pytest.mark.skipif(
    not TEMPLATE_FOLDER.is_dir(), reason="the folder shared/templates is not beside this repository"
)
def test_no_real_template_prints_the_time_of_day() -> None:
    sources = [path.read_text("utf-8") for path in sorted(TEMPLATE_FOLDER.glob("*.jinja"))]
    formats = [found for source in sources for found in re.findall(r"strftime_now\(.(.*?).\)", source)]
    assert len(formats) >= 3
    assert not [each for each in formats if re.search("%[HIMSpfXc]", each)]
