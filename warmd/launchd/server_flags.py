"""The flags that `warmd serve` takes: ours, and those of the server of mlx-lm, read and not imported."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from warmd.errors import UsageError
from warmd.nearest import nearest_of

TakesValue = Mapping[str, bool]
"""By flag: whether a value follows it."""

OWN: TakesValue = {
    **dict.fromkeys(("-h", "--help", "--demo", "--give-up"), False),
    **dict.fromkeys(("--model", "--engine", "--prompts", "--memory-limit", "--log-level", "--port"), True),
}
"""Those of our own parser, and the port, for which `warmd install` has a flag."""
# As our parsers take it: -5GB is a wrong value and no flag.
_NEGATIVE = re.compile(r"-\d")


def server_flags() -> TakesValue | None:
    """Those of the mlx-lm that is installed; None where there is none, or none that can be read."""
    try:
        found = importlib.util.find_spec("mlx_lm")
        if found is None or found.origin is None:
            return None
        tree = ast.parse(Path(found.origin).with_name("server.py").read_bytes())
    except (OSError, ValueError, SyntaxError):
        return None
    return dict(_declared(tree)) or None


def _declared(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """Every `add_argument("--flag", …)`: a value follows unless an action such as `store_true` is named."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", None) == "add_argument":
            takes_value = not any(keyword.arg == "action" for keyword in node.keywords)
            for name in node.args:
                if isinstance(name, ast.Constant) and str(name.value).startswith("-"):
                    yield str(name.value), takes_value


def check_flags(arguments: Sequence[str], server: TakesValue | None) -> None:
    """Stop at what the server's parser would refuse, and at what only it would understand.

    Args:
        arguments: Flags and their values.
        server: See `server_flags`; without them only what begins like one of ours is seen.

    Raises:
        UsageError: A flag is cut short or unknown, a value is missing or too many.
    """
    known = {**(server or {}), **OWN}
    words = iter(arguments)
    for word in words:
        name, _, value = word.partition("=")
        if not word.startswith("-"):
            if server is not None:
                raise UsageError(f"unexpected argument {word!r}")
            continue
        if name not in known:
            _refuse_unknown(name, known, is_complete=server is not None)
        elif known[name] and not value and "=" not in word:
            _check_value(name, next(words, None))


def _refuse_unknown(name: str, known: TakesValue, *, is_complete: bool) -> None:
    meant = [flag for flag in known if flag.startswith(name)] if name.startswith("--") else []
    if meant:
        raise UsageError(f"{name}: expected the whole name of a flag: {' or '.join(sorted(meant))}")
    if is_complete:
        nearest = nearest_of(name, known)
        hint = f"; the nearest known one is {nearest}" if nearest else ""
        raise UsageError(f"{name}: mlx-lm's server has no such flag{hint}")


def _check_value(name: str, value: str | None) -> None:
    if value is None:
        raise UsageError(f"{name}: expected a value, found none")
    if value.startswith("-") and not _NEGATIVE.match(value):
        raise UsageError(f"{name}: expected a value, found {value!r}")
