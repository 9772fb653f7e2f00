"""The schema for editors says the same as the rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.prompts.files import SYSTEM, write
from warmd.prompts import InvalidPromptsError, load_document
from warmd.prompts.json_schema import SCHEMA

CONFIG = Path(__file__).parents[2] / "config"
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

PARTS: list[Any] = [
    "x",
    {},
    {"type": 1},
    {"type": "text"},
    {"type": "text", "text": ""},
    {"type": "text", "text": None},
    {"type": "image_url"},
]
MESSAGE = st.one_of(
    st.just(SYSTEM),
    st.fixed_dictionaries(
        {},
        optional={
            "role": st.sampled_from(["user", "assistant", "", 1]),
            "content": st.sampled_from(["", None, 1, [], *([part] for part in PARTS)]),
            "content_file": st.sampled_from(["a.md", "", 1]),
            "tool_calls": st.sampled_from([None, [], [{}], [1], {}]),
            "other": st.just(1),
        },
    ),
    st.just("x"),
)
MESSAGES = st.lists(MESSAGE, max_size=2)
KWARGS: st.SearchStrategy[Any] = st.sampled_from([{}, {"a": None}, [], None])
PRIORITY = st.sampled_from([0, -1, True, "1", 1.5, None])
ENTRY = st.one_of(
    MESSAGES,
    st.just({"messages": [SYSTEM]}),
    st.fixed_dictionaries(
        {},
        optional={
            "name": st.sampled_from(
                ["a", "", " ", "#a", "a#", "a\n", "\x7f", "é", "x" * 200, "x" * 201, None]
            ),
            "priority": PRIORITY,
            "model": st.sampled_from(["m", "", " ", None, 1]),
            "messages": MESSAGES,
            "tools": st.sampled_from([[], [{}], [1], {}, None]),
            "tools_file": st.sampled_from(["a.json", "", None]),
            "chat_template_kwargs": KWARGS,
            "$comment": st.just(1),
            "x-y": st.just(1),
            "other": st.just(1),
        },
    ),
    st.sampled_from([None, "x"]),
)
# Two names that are equal are beyond a JSON schema, so there is one entry at most.
ENTRIES = st.lists(ENTRY, max_size=1)
DEFAULTS = st.fixed_dictionaries(
    {},
    optional={
        "chat_template_kwargs": KWARGS,
        "priority": PRIORITY,
        "$comment": st.just(1),
        "$schema": st.just(1),
    },
)
FILE = st.one_of(
    ENTRIES,
    st.fixed_dictionaries(
        {},
        optional={
            "prompts": st.one_of(ENTRIES, st.just({})),
            "defaults": st.one_of(DEFAULTS, st.just([])),
            "$schema": st.just(1),
            "x-": st.just(1),
            "other": st.just(1),
        },
    ),
    st.none(),
)


def is_accepted(path: Path) -> bool:
    """What the rules say."""
    try:
        load_document(path)
    except InvalidPromptsError:
        return False
    return True


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_the_committed_copy_is_the_schema() -> None:
    assert json.loads((CONFIG / "warm-prompts.schema.json").read_text("utf-8")) == SCHEMA


def test_the_sample_is_valid_by_the_schema_and_by_the_rules() -> None:
    VALIDATOR.validate(json.loads((CONFIG / "prompts.json").read_text("utf-8")))
    document = load_document(CONFIG / "prompts.json")
    assert [entry.name for entry in document.entries] == ["coder", "shell", "#2"]
    assert document.files == (
        CONFIG / "prompts.json",
        CONFIG / "tools" / "coder.json",
        CONFIG / "prompts" / "coder.md",
    )


@given(FILE)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
def test_schema_and_rules_agree(tmp_path: Path, value: Any) -> None:
    (tmp_path / "a.md").write_text("x")
    (tmp_path / "a.json").write_text("[]")
    assert VALIDATOR.is_valid(value) == is_accepted(write(tmp_path, value))


@pytest.mark.parametrize(
    "value", [[[{"role": "assistant", "tool_calls": [{}]}]], [[SYSTEM], {"messages": [SYSTEM]}]]
)
def test_what_the_design_allows_is_valid_by_the_schema(value: Any) -> None:
    VALIDATOR.validate(value)
