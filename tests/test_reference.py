"""The pages in docs/ are what the code says."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.reference import DOCS, NOTE, PAGES
from warmd.cli import COMMANDS
from warmd.events import CATALOGUE


@pytest.mark.parametrize(("name", "make"), PAGES.items(), ids=PAGES)
def test_a_page_is_what_the_code_says(name: str, make: Callable[[], str]) -> None:
    assert make() == (DOCS / name).read_text("utf-8"), "run `python -m tests.reference`"


def test_every_page_is_made() -> None:
    made = [path.name for path in DOCS.glob("*.md") if NOTE in path.read_text("utf-8")]
    assert sorted(PAGES) == sorted(made)


def test_every_command_and_every_event_has_its_place() -> None:
    assert list(COMMANDS) == re.findall(r"^## `warmd (\w+)`$", PAGES["commands.md"](), re.MULTILINE)
    assert list(CATALOGUE) == re.findall(r"^\| `([a-z._]+)` \|", PAGES["events.md"](), re.MULTILINE)
