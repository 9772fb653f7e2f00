"""What a daemon says is wrong with its prompts file, for people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warmd.prompts.document import FileError
from warmd.text import one_line


def error_lines(document: Mapping[str, Any]) -> list[str]:
    """A line for each error, as `warmd check` prints them."""
    name = Path(document["path"]).name
    return [one_line(_error_line(name, error)) for error in document["errors"]]


def is_missing(document: Mapping[str, Any]) -> bool:
    """True when all that is wrong is that there is no file."""
    return [(error["line"], error["message"]) for error in document["errors"]] == [(None, "no such file")]


def consequence(document: Mapping[str, Any]) -> str:
    """What a wrong file means for what is kept warm."""
    accepted = document["accepted"]
    return f"generation {accepted} stays in force" if accepted else "nothing is kept warm"


def _error_line(name: str, error: Mapping[str, Any]) -> str:
    found = FileError(error["line"], error["column"], error["path"], error["message"])
    return f"{name}{found.place}: {found.message}{found.where}"
