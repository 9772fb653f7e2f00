"""The demo's sample prompts, and how to call the first of them."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

from warmd.errors import CannotStartError
from warmd.text import http_url

QUESTION = "def mean(values): return sum(values) / len(values)"
_MAX_TOKENS = 60

_WELCOME = """\
warmd demo: {model} answers on {url}

Edit {prompts} and save it: only new and edited entries are prefilled.
Ask its first entry something; the request is made from the file as it is then:

  {python} -m warmd.demo {file} {question} |
    curl -sS {url}/v1/chat/completions -H 'Content-Type: application/json' -d @-

`cached_tokens` in the answer counts the tokens that did not have to be prefilled."""


class DemoPromptsError(CannotStartError):
    """The demo's prompts file cannot be written."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"cannot write the demo's prompts file {path}: {error.strerror}")


def ensure_demo_prompts(path: Path) -> bool:
    """Write the sample prompts, unless something is there already.

    Args:
        path: Where; missing parent folders are made.

    Returns:
        True when it was written, False when there was something of that name.

    Raises:
        DemoPromptsError: It cannot be written.
    """
    sample = resources.files("warmd.demo").joinpath("prompts.json").read_bytes()
    try:
        return _write_new(path, sample)
    except OSError as error:
        raise DemoPromptsError(path, error) from error


def _write_new(path: Path, content: bytes) -> bool:
    if os.path.lexists(path):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-") as scratch:
        scratch.write(content)
        scratch.flush()
        try:
            # A link appears complete or not at all, and never replaces a file, which a rename would do.
            os.link(scratch.name, path)
        except FileExistsError:
            return False
    return True


def demo_request(path: Path, user_text: str = QUESTION) -> dict[str, Any]:
    """The body of a chat completion request that begins with the file's first entry.

    Raises:
        WarmdError: The file is not valid, or has no entry.
    """
    from warmd.prefix.request import request_messages
    from warmd.prompts import load_document
    from warmd.settings import Settings

    document = load_document(path.expanduser().absolute(), max_bytes=Settings().prompts.max_bytes)
    if not document.entries:
        raise CannotStartError(f"{path} has no entry")
    entry = document.entries[0]
    request: dict[str, Any] = {"messages": request_messages(entry, user_text), "max_tokens": _MAX_TOKENS}
    if entry.tools:
        request["tools"] = list(entry.tools)
    if entry.chat_template_kwargs:
        request["chat_template_kwargs"] = entry.chat_template_kwargs
    return request


def welcome(host: str, port: int, model_path: Path, prompts_path: Path) -> str:
    """What the demo says at start: which file to edit, and a command that calls its first entry."""
    return _WELCOME.format(
        model=model_path.name,
        # An address to call, for one that a server listens on.
        url=http_url("127.0.0.1" if host in ("", "0.0.0.0", "::") else host, port),
        prompts=prompts_path,
        python=shlex.quote(sys.executable),
        file=shlex.quote(str(prompts_path)),
        question=shlex.quote(QUESTION),
    )
