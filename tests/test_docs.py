"""README and docs/ lead to what is there, and name what exists."""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from tests.pages import (
    DOCS,
    FOR_USERS,
    PAGES,
    README,
    ROOT,
    anchors,
    broken_links,
    links,
    prose_lines,
    section,
)
from tests.reference import PAGES as MADE
from tests.reference import metric_names
from warmd.events import CATALOGUE
from warmd.settings import Settings
from warmd.status import State

WIDEST = 120


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_somewhere(name: str) -> None:
    assert broken_links(ROOT / name, PAGES[name]) == []


def test_links_that_lead_nowhere_are_seen(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A `b` c, d!\n\n## Twice\n\n## Twice\n\n```\n# no heading\n```\n")
    good = ["other.md", "other.md#a-b-c-d", "other.md#twice", "other.md#twice-1", "#here", "https://x.y/z"]
    bad = ["none.md", "other.md#none", "other.md#no-heading", "other.md#twice-2", "#there"]
    text = "# Here\n\n" + "\n".join(f"- [`x`\n  y]({link})" for link in [*good, *bad])
    assert links(text) == [*good, *bad]
    assert broken_links(tmp_path / "page.md", text) == bad


def test_every_page_is_in_the_readme_s_reference() -> None:
    listed = {link for link in links(section(README, "Reference")) if link.startswith("docs/")}
    assert listed == {f"docs/{path.name}" for path in DOCS.iterdir()}


def test_the_readme_s_contents_are_its_sections() -> None:
    contents = [link.removeprefix("#") for link in links(README.partition("\n## ")[0])]
    assert sorted(contents) == sorted(anchors(README) - {"warmd"})


@pytest.mark.parametrize("name", sorted({*PAGES} - {"CHANGELOG.md", *(f"docs/{name}" for name in MADE)}))
def test_prose_is_wrapped(name: str) -> None:
    assert [line for line in prose_lines(PAGES[name]) if len(line) > WIDEST] == []


def test_the_readme_is_short_enough_to_be_read() -> None:
    assert len(README.splitlines()) <= 400


def test_every_event_that_is_named_exists() -> None:
    groups = "|".join({name.partition(".")[0] for name in CATALOGUE})
    named = {
        (page, name)
        for page, text in FOR_USERS.items()
        for name in re.findall(rf"`((?:{groups})\.[a-z_]+)`", text)
        if not name.endswith(("_file", ".json"))
    }
    assert {(page, name) for page, name in named if name not in CATALOGUE} == set()
    assert len({name for _, name in named}) == len(CATALOGUE)


def test_every_metric_that_is_named_exists() -> None:
    named = {name for text in FOR_USERS.values() for name in re.findall(r"`(warmd_[a-z_]+)`", text)}
    assert named == set(metric_names())


def test_every_setting_that_is_named_exists() -> None:
    named = {pair for text in FOR_USERS.values() for pair in re.findall(r"`\[(\w+)\] (\w+)", text)}
    known = {
        (section.name, key.name)
        for section in fields(Settings)
        for key in fields(getattr(Settings(), section.name))
    }
    assert named - known == set()
    assert len(named) > 10


def test_the_readme_explains_every_state_of_an_entry() -> None:
    rows = re.findall(r"^\| (`.+?`) \|", section(README, "When things go wrong"), re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(get_args(State))


def test_what_is_on_the_package_index_leads_nowhere_that_is_not_there() -> None:
    """There the README has no files beside it: its links to them become plain text."""
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    hook = metadata["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    assert hook["fragments"] == [{"path": "README.md"}]
    text = README
    for change in hook["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    assert [link for link in links(text) if not link.startswith(("#", "https://"))] == []
    assert "[Running it]" not in text
    assert "Running it (`docs/operations.md`)" in text


def test_the_readme_s_files_are_installed_beside_it() -> None:
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    shared = metadata["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    assert {place.removeprefix("share/doc/warmd/") for place in shared.values()} == {*shared}
    needed = {re.split("[/#]", link)[0] for link in links(README) if not link.startswith(("#", "https:"))}
    assert needed | {"README.md"} <= {*shared}
