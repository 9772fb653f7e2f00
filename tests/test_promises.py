"""Each promise of the README has tests, and the README names them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.pages import README, ROOT, section

PROMISES = 9


def marked() -> Iterator[tuple[int, str]]:
    """Every test that is marked with a promise."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found = re.findall(
                    r"pytest\.mark\.promise\((\d+)\)", " ".join(map(ast.unparse, node.decorator_list))
                )
                yield from ((int(number), f"{path.relative_to(ROOT)}::{node.name}") for number in found)


def named() -> list[tuple[int, str]]:
    """Every test that the README names for a promise."""
    table = section(README, "Promises")
    rows = re.findall(r"^\| (\d) \| .* \| (.*) \|$", table, re.MULTILINE)
    return [(int(number), test) for number, tests in rows for test in re.findall(r"`([^`]+)`", tests)]


def test_the_readme_names_each_promise_s_tests() -> None:
    assert sorted(named()) == sorted(marked())


def test_no_promise_is_without_a_test() -> None:
    assert {number for number, _ in named()} == set(range(1, PROMISES + 1))


def test_the_readme_tells_how_to_run_just_those() -> None:
    assert "python -m pytest -m promise" in README
