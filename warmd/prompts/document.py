"""The values that the warm-prompts file turns into."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Message = dict[str, Any]
"""A chat message of the file, `content_file` already replaced by `content`. Treat as read-only."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One item of the warm-prompts file.

    Attributes:
        name: The entry's own name, or ``#N`` with its index from 0.
        index: Position in the file, from 0.
        messages: The conversation's beginning. Never mutated: engines render a deep copy.
        tools: Tool definitions in the file's key order, or None.
        chat_template_kwargs: The file's defaults updated by the entry's own.
        priority: Higher is warmed first; ties go by file order.
        digest: SHA-256 (hex) of everything above that decides the tokens: messages, tools, kwargs.
        model: The model that it belongs to, as the file names it; None for any.
        has_images: True when a message carries an image part, which no text prefix can hold.
    """

    name: str
    index: int
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] | None
    chat_template_kwargs: dict[str, Any]
    priority: int
    digest: str
    has_images: bool = False
    model: str | None = None

    def is_for(self, model: str) -> bool:
        """True when it is to be kept warm in a model: the one it names, in full or by the last part."""
        if self.model is None:
            return True
        # Not Path.expanduser: it raises where there is no home, and a name of the hub is no path.
        names = (self.model, os.path.expanduser(self.model))  # noqa: PTH111
        return model in names or Path(model).name == self.model

    @property
    def is_named(self) -> bool:
        """False for entries that are called ``#N``."""
        return not self.name.startswith("#")

    @property
    def ends_in_user_turn(self) -> bool:
        """True when the last message is a user turn: the prefix ends where its content begins."""
        return self.messages[-1].get("role") == "user"


@dataclass(frozen=True, slots=True)
class Document:
    """One accepted revision of the warm-prompts file.

    Attributes:
        path: The file, absolute, symlinks not resolved.
        sha256: Hex digest of the main file's bytes (what ``shasum -a 256`` prints).
        digest: Hex digest over the main file and every included file.
        entries: In file order.
        files: Every file that took part (main file first), whether it could be read or not, to be watched.
    """

    path: Path
    sha256: str
    digest: str
    entries: tuple[Entry, ...]
    files: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class FileError:
    """One thing that is wrong with the file.

    Attributes:
        line: 1-based line of the offending value, or None when the error has no position.
        column: 1-based column in characters, or None.
        path: JSON path such as ``$.prompts[1].messages[0].content``; unknown keys appear as ``*``.
        message: What is wrong and what was expected. Never contains prompt text.
    """

    line: int | None
    column: int | None
    path: str
    message: str

    @property
    def place(self) -> str:
        """``:3:5``, to follow the file's name; empty where there is no position."""
        return f":{self.line}:{self.column}" if self.line is not None else ""

    @property
    def where(self) -> str:
        """`` (at $.prompts[1])``, to end a line with; empty where it is about the file as such."""
        return f" (at {self.path})" if self.line is not None or self.path != "$" else ""
