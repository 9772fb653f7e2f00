"""The words of a log call as they stand in its source: what a message says without the values filled in."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

BLANK = "…"

METHODS = frozenset({"debug", "info", "warning", "warn", "error", "exception", "critical", "log"})
"""Of loggers; and of the module `warnings`."""

_PLACEHOLDER = re.compile(r"%(?:%|(?:\(\w+\))?[-#0 +]*(?:\*|\d+)?(?:\.(?:\*|\d+))?[hlL]?[diouxXeEfFgGcrsa])")
"""What `%` fills in; https://docs.python.org/3/library/stdtypes.html#printf-style-string-formatting."""


class Call(NamedTuple):
    """A log call: its first and last line, and its message where that is written out there."""

    first: int
    last: int
    text: str | None


def literal_message(file: str, line: int) -> str | None:
    """What the log call at a place says, each value that it fills in shown as `…`.

    The result consists of source text only, so nothing that a program works on can be in it. None: there is
    no such call, its source is not at hand, or the message comes from elsewhere.
    """
    around = [call for call in _calls(file) if call.first <= line <= call.last]
    return min(around, key=lambda call: call.last - call.first).text if around else None


@lru_cache(maxsize=64)
def _calls(file: str) -> tuple[Call, ...]:
    if not file.endswith(".py"):
        return ()
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(
        Call(node.lineno, node.end_lineno or node.lineno, _text(node))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS
    )


def _text(call: ast.Call) -> str | None:
    """The message argument: the second of `log`, the first of the others."""
    index = int(isinstance(call.func, ast.Attribute) and call.func.attr == "log")
    parts = _parts(call.args[index]) if len(call.args) > index else [BLANK]
    if len(call.args) > index + 1:
        parts = _blanked(parts)
    return None if all(part == BLANK for part in parts) else "".join(parts).strip()


def _parts(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        return [part for value in node.values for part in _parts(value)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_parts(node.left), *_parts(node.right)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return _blanked(_parts(node.left))
    return [BLANK]


def _blanked(parts: list[str]) -> list[str]:
    return [_PLACEHOLDER.sub(lambda match: "%" if match[0] == "%%" else BLANK, part) for part in parts]
