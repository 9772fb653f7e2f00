"""Chat templates that ask a clock of ours."""

from __future__ import annotations

import copy
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from tests.toys import CHATML, make_tokenizer
from warmd.engines.host_text import HostText
from warmd.engines.templates import ConnectedTemplates

PAST = datetime(1999, 12, 31, 23, 59, 58)
TEMPLATE = "  {% if true %}\n{{ strftime_now('%F %T') }} {% endif %}\n" + CHATML + "\n\n"


def render(tokenizer: Any, **more: Any) -> str:
    messages = [{"role": "user", "content": "hi"}]
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **more))


def test_a_held_clock_is_what_the_template_prints_and_its_questions_are_noted() -> None:
    tokenizer = make_tokenizer("gpt2", TEMPLATE)
    clock = ConnectedTemplates(tokenizer).clock
    assert clock.is_connected
    with clock.held(PAST) as reading:
        assert render(tokenizer).startswith("1999-12-31 23:59:58 ")
    assert list(reading.formats) == ["%F %T"]


def test_but_for_the_time_the_render_is_the_same_to_the_last_character() -> None:
    original = make_tokenizer("gpt2", TEMPLATE)
    ours = copy.deepcopy(original)
    clock = ConnectedTemplates(ours).clock
    other = "{{ '1999-12-31 23:59:58' }}"
    expected = render(make_tokenizer("gpt2", TEMPLATE.replace("{{ strftime_now('%F %T') }}", other)))
    with clock.held(PAST):
        assert expected == render(ours)


def test_a_clock_that_is_not_held_leaves_the_question_to_transformers() -> None:
    tokenizer = make_tokenizer("gpt2", "{{ strftime_now('%Y-%m-%d') }}")
    ConnectedTemplates(tokenizer)
    before = datetime.now().strftime("%Y-%m-%d")
    assert render(tokenizer) in (before, datetime.now().strftime("%Y-%m-%d"))


def test_each_renderer_has_a_clock_of_its_own() -> None:
    first, second = make_tokenizer("gpt2", TEMPLATE), make_tokenizer("gpt2", TEMPLATE)
    clock, other = ConnectedTemplates(first).clock, ConnectedTemplates(second).clock
    with clock.held(PAST), other.held(datetime(1970, 1, 1)):
        assert render(first).startswith("1999-12-31")
        assert render(second).startswith("1970-01-01")


def test_every_one_of_several_templates_is_connected() -> None:
    tokenizer = make_tokenizer("gpt2", "")
    tokenizer.chat_template = {"default": "{{ strftime_now('%Y') }}", "tool_use": "{{ strftime_now('%m') }}"}
    clock = ConnectedTemplates(tokenizer).clock
    with clock.held(PAST):
        assert (render(tokenizer), render(tokenizer, tools=[{}])) == ("1999", "12")


def test_a_template_that_is_none_is_left_for_whoever_renders_it() -> None:
    tokenizer = make_tokenizer("gpt2", "{% if %}")
    assert not ConnectedTemplates(tokenizer).clock.is_connected
    assert tokenizer.chat_template == "{% if %}"


def test_a_tokenizer_of_another_kind_is_left_alone() -> None:
    tokenizer = SimpleNamespace()
    assert not ConnectedTemplates(tokenizer).clock.is_connected
    assert vars(tokenizer) == {}


def test_a_host_s_own_tokenizer_is_left_alone_and_its_copy_asks_our_clock() -> None:
    tokenizer = make_tokenizer("gpt2", TEMPLATE)
    text = HostText(tokenizer)
    with text.clock.held(PAST):
        assert text.render([{"role": "user", "content": "hi"}], None, {}).startswith("1999-12-31")
        assert not render(tokenizer).startswith("1999-12-31")
