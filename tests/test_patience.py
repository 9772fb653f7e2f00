"""No test fails because a machine is slow."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent

WAITS = {"fail_after", "wait", "join", "communicate", "result", "take"}
"""What waits for something, by its first argument."""

CALLS = {"run", "communicate", "urlopen", "create_connection", "HTTPConnection", "ChatServer"}
"""What waits for something, by its `timeout`."""

MOMENT = 1.0
"""Seconds. What waits for less sees that nothing happens, or is about a wait that is too short."""


def impatient(source: str) -> Iterator[int]:
    """The lines that wait for less than `PATIENCE`: for a number of seconds of their own."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = node.args[:1] if name in WAITS else []
            given += [each.value for each in node.keywords if each.arg == "timeout" and name in CALLS]
            for value in given:
                if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
                    yield from [node.lineno] * (value.value >= MOMENT)


def test_whoever_waits_for_what_should_happen_is_patient() -> None:
    found = {path: [*impatient(path.read_text("utf-8"))] for path in TESTS.rglob("*.py")}
    assert {path: lines for path, lines in found.items() if lines and path.parent.name != "bench"} == {}


def test_a_wait_that_is_too_short_is_found() -> None:
    source = "with fail_after(5):\n  process.wait(20)\nrun([], timeout=60)\nwait(PATIENCE)\nwait(0.1)"
    assert {*impatient(source)} == {1, 2, 3}
