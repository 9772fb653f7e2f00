"""How command lines are parsed: as argparse does it, but each error is one line, with what was expected."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from typing import Any, NoReturn


class CommandParser(argparse.ArgumentParser):
    """A parser that tells an error in one line and does not list all flags; subparsers are of its kind."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        # -5GB is a wrong value and no flag; Python itself knows plain numbers only.
        self._negative_number_matcher = re.compile(r"^-\d")

    def error(self, message: str) -> NoReturn:
        """Exit with 2."""
        self.exit(2, f"{self.prog}: error: {message}; see `{self.prog} --help`\n")


class ServerParser(CommandParser):
    """In place of the parser that another server makes for its own flags."""

    def __init__(self, *args: Any, **more: Any) -> None:
        # Whoever looks for --port in a command line, as `warmd doctor` does, would miss --por.
        super().__init__(*args, **{**more, "allow_abbrev": False})

    def add_argument(self, *names: Any, **more: Any) -> argparse.Action:
        """Add a flag whose values are converted with words for what was expected."""
        if (kind := getattr(more.get("type"), "__name__", None)) in _EXPECTED:
            more["type"] = _converter(kind, more["type"])
        return super().add_argument(*names, **more)


def json_object(text: str) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ValueError: It is none; the message does not quote it.
    """
    # Imported here: the other commands do without.
    from warmd.prompts.validate import kind

    try:
        value = json.loads(text)
    # Nesting too deep to parse is no ValueError.
    except (ValueError, RecursionError):
        raise ValueError(f"expected {_EXPECTED['loads']}, found no valid JSON") from None
    if not isinstance(value, dict):
        raise ValueError(f"expected {_EXPECTED['loads']}, found {kind(value)}")
    return value


Convert = Callable[[str], Any]

_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "loads": "a JSON object",
    "_parse_size": "a size such as 2GB",
}
"""By the name of the type that mlx-lm gives."""


def _converter(kind: str, convert: Convert) -> Convert:
    def converted(text: str) -> Any:
        try:
            return json_object(text) if kind == "loads" else convert(text)
        # mlx-lm's own converters raise more than argparse is prepared for.
        except (ValueError, LookupError, ArithmeticError) as error:
            # What stands in JSON may be a prompt's.
            told = str(error) if kind == "loads" else f"expected {_EXPECTED[kind]}, found {text!r}"
            raise argparse.ArgumentTypeError(told) from None

    return converted
