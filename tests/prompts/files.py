"""Writes prompts files and collects what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from warmd.prompts import Document, FileError, InvalidPromptsError, load_document

SYSTEM = {"role": "system", "content": "You review code."}


def write(folder: Path, value: Any) -> Path:
    """Write a prompts file with this value."""
    path = folder / "prompts.json"
    path.write_text(json.dumps(value), "utf-8")
    return path


def load(folder: Path, value: Any) -> Document:
    """The document of a file with this value."""
    return load_document(write(folder, value))


def refusal(path: Path, **options: Any) -> InvalidPromptsError:
    """What is raised for a file that must be refused."""
    try:
        load_document(path, **options)
    except InvalidPromptsError as error:
        return error
    raise AssertionError("the file was accepted")


def errors_of(folder: Path, value: Any) -> tuple[FileError, ...]:
    """Everything that is wrong with a file with this value."""
    return refusal(write(folder, value)).errors


def errors_of_text(folder: Path, text: str) -> tuple[FileError, ...]:
    """Everything that is wrong with a file with this text."""
    path = folder / "prompts.json"
    path.write_bytes(text.encode("utf-8"))
    return refusal(path).errors
